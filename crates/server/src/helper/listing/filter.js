(() => {
  const box = document.getElementById("filter");
  const count = document.getElementById("count");
  const all = count.textContent;
  let rows;
  const apply = () => {
    rows ??= [...document.querySelectorAll("tbody tr:not(#up)")]
      .map(row => [row, row.cells[0].textContent.toLowerCase()]);
    const wanted = box.value.trim().toLowerCase();
    let fitting = 0;
    for (const [row, name] of rows) {
      row.hidden = !name.includes(wanted);
      fitting += !row.hidden;
    }
    count.textContent = wanted ? `${fitting} of ${rows.length} shown` : all;
  };
  box.addEventListener("input", apply);
  box.parentElement.hidden = false;
  if (box.value) apply();
})();
