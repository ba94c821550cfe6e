"use strict";
// Sorting, filtering and copying in the runs table, and open details in print. The page is whole without any of it.
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
    const last = row.cells[column].lastChild; // after the buttons and the link of the last column
    const raw = last ? last.textContent.trim() : "";
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

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) { // no clipboard for this page, or not allowed: as it was done before there was one
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      button.focus();
      return done;
    }
    return true;
  }
  function button(words, label, text) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "copy";
    made.textContent = words;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", async () => {
      made.textContent = (await copy(text, made)) ? "copied" : "not allowed";
      made.setAttribute("aria-label", made.textContent);
      setTimeout(() => { made.textContent = words; made.setAttribute("aria-label", label); }, 1500);
    });
    return made;
  }
  rows.forEach((row) => {
    const cell = row.cells[row.cells.length - 1];
    const link = cell.querySelector("a");
    const place = cell.lastChild.textContent.trim();
    const made = place === "not found" ? [] : [button("copy", "copy the path", place), " "];
    if (link) made.push(button("copy link", "copy the address in wandb", link.href), " ");
    cell.prepend(...made);
  });

  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
