"""One module a task; every module here is imported by `lossbench.data.task`."""
