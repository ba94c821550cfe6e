"""The losses, one module a family of the literature. A file dropped in here is found by itself: no list to edit."""
