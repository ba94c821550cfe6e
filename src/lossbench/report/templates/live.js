"use strict";
// `lossbench report --watch`: load again when the report is another one, and keep what the reader was looking at.
(function () {
  const EVERY = 2000; // milliseconds
  const KEY = "lossbench-view";
  const version = document.documentElement.dataset.version;
  const status = document.getElementById("live");
  const filter = document.getElementById("filter");
  const heads = () => Array.from(document.querySelectorAll("#runs-table thead th"));

  function remember() {
    const sorted = heads().findIndex((head) => head.hasAttribute("aria-sort"));
    const order = sorted < 0 ? "" : heads()[sorted].getAttribute("aria-sort");
    const open = Array.from(document.querySelectorAll("details"), (d) => d.open);
    sessionStorage.setItem(KEY, JSON.stringify({ y: window.scrollY, filter: filter ? filter.value : "", sorted, order, open }));
  }
  function restore() {
    const text = sessionStorage.getItem(KEY);
    if (!text) return;
    sessionStorage.removeItem(KEY);
    const view = JSON.parse(text);
    if (filter && view.filter) {
      filter.value = view.filter;
      filter.dispatchEvent(new Event("input"));
    }
    const head = heads()[view.sorted];
    const clicks = !head || !view.order ? 0 : view.order === "ascending" ? 1 : 2;
    for (let i = 0; i < clicks; i += 1) head.querySelector("button").click();
    document.querySelectorAll("details").forEach((d, i) => { if (i in view.open) d.open = view.open[i]; });
    window.scrollTo({ top: view.y, behavior: "instant" });
  }
  async function look() {
    try {
      const answer = await fetch("/version", { cache: "no-store" });
      const now = await answer.text();
      status.textContent = "live";
      if (answer.ok && now !== version) {
        remember();
        location.reload();
        return;
      }
    } catch (error) {
      status.textContent = "not live: the command that serves this page has ended";
    }
    setTimeout(look, EVERY);
  }
  restore();
  setTimeout(look, EVERY);
})();
