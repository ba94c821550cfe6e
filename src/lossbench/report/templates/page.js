"use strict";
// Sorting and filtering of the runs table, and open details in print. The page is whole without any of it.
(function () {
  const table = document.getElementById("runs-table");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const text = rows.map((row) => row.textContent.toLowerCase());

  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/).filter((word) => word && word !== "-");
    let count = 0;
    rows.forEach((row, i) => {
      const keep = words.every((w) => (w[0] === "-" ? !text[i].includes(w.slice(1)) : text[i].includes(w)));
      row.hidden = !keep;
      count += keep;
    });
    shown.textContent = count + " of " + rows.length + (rows.length === 1 ? " run" : " runs");
  }
  filter.addEventListener("input", apply);
  filter.closest("p").hidden = false;
  apply();

  function value(row, column) {
    const raw = row.cells[column].textContent.trim();
    const number = Number(raw.replace("−", "-"));
    return raw === "" ? null : Number.isNaN(number) ? raw.toLowerCase() : number;
  }
  function compare(a, b) {
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  }
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = rows.map((row, i) => ({ row, i, key: value(row, column) }));
      keyed.sort((a, b) => {
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.i - b.i; // blanks last
        return (up ? 1 : -1) * compare(a.key, b.key) || a.i - b.i;
      });
      body.append(...keyed.map((entry) => entry.row));
    });
  });

  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
