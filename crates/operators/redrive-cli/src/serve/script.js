// Live runs, and keys. Everything works without it, but for the live updates.
"use strict";

const live = () => document.querySelector("#live[data-live]");

async function refresh() {
  const part = live();
  // What somebody types into is left alone.
  if (!part || part.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.querySelector("#live");
    if (next && next.innerHTML !== part.innerHTML) part.replaceWith(document.importNode(next, true));
  } catch {
    // The server is away: the next look may find it.
  }
}

if (live()) setInterval(refresh, 1000);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const rows = [...document.querySelectorAll("a.row")];
  const at = rows.indexOf(document.activeElement);
  if (event.key === "j" && rows.length) rows[Math.min(at + 1, rows.length - 1)].focus();
  else if (event.key === "k" && rows.length) rows[Math.max(at - 1, 0)].focus();
  else if (event.key === "/" && document.querySelector("#filter")) {
    event.preventDefault();
    document.querySelector("#filter").focus();
  }
});
