// Tables that sort by any column, filter by any cell and copy as CSV. Cells are text: a number is read from it.
"use strict";
window.lstmprofTables = () => {
  const ABSENT = "–";
  const cellsOf = (row) => [...row.children].map((cell) => cell.textContent.trim());
  // 1,234.5 · 12.3 % · −4 (with the typographic minus): null where it is no number.
  function numberOf(text) {
    const found = /^([-+−]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*[%×]?$/i.exec(text);
    return found ? Number(found[1].replaceAll(",", "").replace("−", "-")) : null;
  }

  function compare(one, other) {
    const [a, b] = [numberOf(one), numberOf(other)];
    return a !== null && b !== null ? a - b : one.localeCompare(other, "en", { numeric: true });
  }

  // What is unknown stays last, whichever way.
  function sort(table, column, descending) {
    const keyed = [...table.tBodies[0].rows].map((row) => ({ row, text: cellsOf(row)[column] }));
    const known = keyed.filter(({ text }) => text !== ABSENT), rest = keyed.filter(({ text }) => text === ABSENT);
    known.sort((a, b) => (descending ? -1 : 1) * compare(a.text, b.text));
    table.tBodies[0].append(...[...known, ...rest].map(({ row }) => row));
  }

  function resort(table) {
    const heads = [...table.tHead.rows[0].cells];
    const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    if (column >= 0) sort(table, column, heads[column].getAttribute("aria-sort") === "descending");
  }

  // The largest number first, the first name first: what one looks for in either.
  function sortBy(table, head) {
    const heads = [...table.tHead.rows[0].cells], before = head.getAttribute("aria-sort");
    for (const other of heads) other.removeAttribute("aria-sort");
    const first = head.classList.contains("n") ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    head.setAttribute("aria-sort", before === first ? second : first);
    resort(table);
  }

  // Fields as RFC 4180 has them; a text that a spreadsheet would run has an apostrophe in front.
  function csv(table) {
    const field = (text) => {
      const inert = /^[=+\-@−\t\r]/.test(text) && numberOf(text) === null ? "'" + text : text;
      return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
    };
    const value = (text) => (text === ABSENT ? "" : numberOf(text) !== null ? String(text).replaceAll(",", "") : text);
    const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.replaceAll("\u00ad", "").trim());
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => cellsOf(row).map(value));
    return [heads, ...rows].map((cells) => cells.map(field).join(",")).join("\r\n") + "\r\n";
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // not allowed, or no such thing: the older way
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
    return true;
  }

  function filter(table, wanted) {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = cellsOf(row).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortBy(table, head));
      head.append(button);
    }
    const find = document.querySelector(`[data-filter="${table.id}"]`);
    find?.addEventListener("input", () => filter(table, find.value));
    const button = document.querySelector(`[data-copy="${table.id}"]`), told = button?.textContent;
    button?.addEventListener("click", async () => {
      button.textContent = (await copy(csv(table))) ? "Copied" : "Not allowed here";
      setTimeout(() => { button.textContent = told; }, 2000);
    });
  }
  return { resort };
};
