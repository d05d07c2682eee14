"use strict";
(() => {
  const root = document.body;
  const data = JSON.parse(document.getElementById("data").textContent);
  const chosen = { s: data.site, k: "", v: data.view };
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  const cards = all(".card");
  const percent = (share) => {
    const value = 100 * share;
    if (value > 0 && value < 0.05) return "under 0.1\u00a0%";
    if (value >= 99.5 && value < 100) return "over 99\u00a0%";
    return (value < 9.95 ? value.toFixed(1).replace(".0", "") : value.toFixed(0)) + "\u00a0%";
  };
  const text = (number, spread) => { // values come in hundredths of spreads: no more digits than that
    const digits = Math.max(0, -Math.floor(Math.log10(spread / 20)));
    const rounded = Number(number.toFixed(Math.min(digits, 20))) || 0;
    const fixed = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    const shown = digits > 4 ? rounded.toExponential(1) : rounded.toLocaleString("en", fixed);
    return shown.replaceAll("-", "−");
  };
  const day = (number) => new Date(Math.round(number) * 864e5).toISOString().slice(0, 10); // of days since 1970
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

  function sizes(shown) {
    const rows = cards.map((_, k) => sum(shown.map((site) => site.sizes[k])));
    const total = sum(rows) || 1;
    cards.forEach((card, k) => {
      const size = card.querySelector(".size");
      if (!size) return;
      size.textContent = rows[k].toLocaleString("en") + (rows[k] === 1 ? " row, " : " rows, ") + percent(rows[k] / total);
      card.querySelector(".meter b").style.width = (100 * rows[k]) / total + "%";
    });
  }

  function certainty(shown) {
    const drawing = document.querySelector("#certainty svg");
    if (!drawing) return;
    const bars = all(".bin path", drawing), texts = all(".value text", drawing);
    const frame = drawing.querySelector(".frame path").getBBox(), bottom = frame.y + frame.height;
    const rows = bars.map((_, i) => sum(shown.map((site) => site.certainty[i])));
    const total = sum(rows) || 1;
    bars.forEach((bar, i) => {
      const { x, width } = bar.getBBox(), top = bottom - (frame.height * rows[i]) / total;
      bar.setAttribute("d", `M${x} ${bottom}H${x + width}V${top}H${x}z`);
      texts[i].setAttribute("y", top - 4);
      texts[i].textContent = rows[i] >= data.least * total ? percent(rows[i] / total) : "";
    });
  }

  function features(site) {
    cards.forEach((card, k) => all("tbody tr", card).forEach((row, i) => {
      const value = site && site.features[k] ? site.features[k][i] : null;
      const mark = row.querySelector("i"), cell = row.querySelector(".here");
      mark.style.display = value === null ? "none" : "block";
      cell.textContent = "–";
      if (value === null) return;
      const spreads = value / 100;
      mark.style.left = 50 + 50 * Math.max(-1, Math.min(1, spreads / data.reach)) + "%";
      const number = Number(row.dataset.m) + spreads * Number(row.dataset.d);
      cell.textContent = "date" in row.dataset ? day(number) : text(number, Number(row.dataset.d));
    }));
  }

  function update() {
    root.classList.toggle("sited", chosen.s !== "");
    root.classList.toggle("chosen", chosen.k !== "" || (chosen.s !== "" && chosen.s !== data.site));
    all("[data-s],[data-k],[data-v]").forEach((part) => {
      const other = Object.keys(chosen).some((key) =>
        chosen[key] !== "" && part.dataset[key] !== undefined && part.dataset[key] !== chosen[key]);
      part.classList.toggle("off", other);
    });
    const known = Object.keys(data.sites);
    if (known.length) {
      const shown = chosen.s === "" ? known.map((s) => data.sites[s]) : [data.sites[chosen.s]];
      sizes(shown);
      certainty(shown);
      features(chosen.s === "" ? null : data.sites[chosen.s]);
    }
    cards.forEach((card) => { if (card.dataset.k === chosen.k) card.open = true; });
  }

  all("select").forEach((select) => {
    select.value = chosen[select.dataset.key];
    select.addEventListener("change", () => { chosen[select.dataset.key] = select.value; update(); });
  });
  // paper shows what is folded on the screen, but the numbers of pictures, and cards where there are many
  let unfolded = [];
  window.addEventListener("beforeprint", () => {
    unfolded = all(".cards[data-print=true] .card, section > details").filter((part) => !part.open);
    unfolded.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => { unfolded.forEach((part) => { part.open = false; }); });
  update();
})();
