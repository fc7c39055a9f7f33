"use strict";
(() => {
  const root = document.documentElement;
  const wantsDark = () =>
    (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

  const theme = document.getElementById("theme");
  const showTheme = () => {
    theme.textContent = wantsDark() ? "Light theme" : "Dark theme";
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = wantsDark() ? "light" : "dark";
    showTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  showTheme();

  document.getElementById("save").addEventListener("click", () => {
    const text = document.getElementById("numbers").textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "audit.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  const cellKey = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent.trim().toLowerCase();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };

  // missing values stay at the end, whichever way the others go
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  };

  const sortBy = (table, header) => {
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [cellKey(row, header.cellIndex), row]);
    keyed.sort((a, b) => compare(a[0], b[0], sign));
    body.append(...keyed.map(([, row]) => row));
  };

  for (const table of document.querySelectorAll("table[id]")) {
    for (const button of table.querySelectorAll(".sort")) {
      // no button element: browsers leave those out of the headers that they repeat on paper
      button.setAttribute("role", "button");
      button.tabIndex = 0;
      button.addEventListener("click", () => sortBy(table, button.closest("th")));
      button.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        button.click();
      });
    }
    const search = document.getElementById(`${table.id}-search`);
    const tools = search.parentElement;
    const rows = [...table.tBodies[0].rows];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every((word) => texts.get(row).includes(word));
      const shown = rows.filter((row) => !row.hidden).length;
      tools.querySelector(".count").textContent =
        shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
    });
    tools.hidden = rows.length < 8;
  }
  document.querySelector(".actions").hidden = false;
})();
