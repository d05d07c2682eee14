"use strict";
// What the theme leaves out for people who do not use a mouse or do not see the page.
document.addEventListener("DOMContentLoaded", () => {
  const all = (query) => document.querySelectorAll(query);
  all('.caption[role="heading"]').forEach((caption) => caption.setAttribute("aria-level", "2"));
  all(".highlight pre, .table-wrapper").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0; // it can be scrolled by keys
  });
  all(".sphx-glr-thumbcontainer").forEach((card) => {
    const title = card.querySelector(".sphx-glr-thumbnail-title");
    const link = card.querySelector("p > a.reference");
    if (title && link) link.setAttribute("aria-label", title.textContent);
  });
});
