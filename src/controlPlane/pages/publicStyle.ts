/** The style of the pages that need no key and run no script. */
export const publicStyle = `
:root { color-scheme: light dark; --bg: light-dark(#f6f6f3, #131417); --surface: light-dark(#fff, #1a1c20); --ink: light-dark(#1c1d20, #e8e8e6); --muted: light-dark(#62656c, #9ba0a9); --line: light-dark(#e3e3dd, #2a2d33); --accent: light-dark(#2f5bd0, #8aa9ff); --fill: light-dark(#2f5bd0, #4468d8); --green: light-dark(#177a44, #4ec584); --amber: light-dark(#8f5a06, #e3ad4b); --blue: light-dark(#1c66b8, #6ab1f2); --violet: light-dark(#6d45b8, #b497f0); --red: light-dark(#b3261e, #f2857c); --grey: light-dark(#70747c, #8d929b); --track: light-dark(#e7e7e2, #2a2d33); }
body { font: 14.5px/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-variant-numeric: tabular-nums; background: var(--bg); color: var(--ink); max-width: 66rem; margin: 0 auto; padding: 3rem 1.25rem; }
h1 { font-size: 1.55rem; letter-spacing: -.02em; margin: 0; }
h2 { font-size: .95rem; margin: 0 0 .6rem; }
p { margin: .25rem 0 1rem; color: var(--muted); }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .9em; }
nav { display: flex; flex-wrap: wrap; gap: .5rem 1.1rem; align-items: center; margin: 1rem 0 1.75rem; }
.first { background: var(--fill); color: #fff; padding: .35rem .9rem; border-radius: 7px; font-weight: 560; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 1rem; }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem; }
.card .figure { font-size: 1.8rem; margin: 0 0 .35rem; font-weight: 640; letter-spacing: -.02em; line-height: 1.2; color: var(--ink); }
.card p { margin: .2rem 0 0; font-size: .9em; }
ul { list-style: none; margin: 0; padding: 0; }
li { display: flex; gap: .6rem; align-items: baseline; padding: .12rem 0; }
li b { margin-left: auto; font-weight: 600; }
.wide { margin-top: 1rem; }
.warning { color: var(--amber); }
.dot { display: inline-block; flex: none; width: .55em; height: .55em; border-radius: 50%; background: var(--c); border: 2px solid var(--c); box-sizing: border-box; align-self: center; }
.running, .is-connected { --c: var(--green); }
.starting, .stopping, .is-drained { --c: var(--amber); }
.installing { --c: var(--blue); }
.paused { --c: var(--violet); }
.unknown, .is-away { --c: var(--red); }
.offline { --c: var(--grey); }
.offline.dot { background: none; }
table { border-collapse: collapse; width: 100%; background: var(--surface); }
th, td { text-align: left; padding: .55rem .75rem; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { white-space: nowrap; }
th { color: var(--muted); font-weight: 540; font-size: .85em; }
tbody tr:last-child td { border: 0; }
.framed { border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
td:first-child { font-weight: 600; }
td .dot { margin-right: .6em; }
.banner td:last-child > span { display: flex; align-items: baseline; }
svg { vertical-align: middle; margin-right: .6rem; }
.track { fill: var(--track); }
.used { fill: var(--accent); }
@media (min-width: 80rem) {
  body:has(.all) { max-width: 84rem; }
  .all td:nth-child(2), .all td:nth-child(4) { min-width: 10rem; overflow-wrap: anywhere; }
  .all td:nth-child(n+5) { white-space: nowrap; }
}
@media (max-width: 79.99rem) {
  .all { border: 0; border-radius: 0; }
  .all table, .all tbody { display: block; background: none; }
  .all thead { display: none; }
  .all tbody { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
  .all tr { display: block; background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: .7rem 1.1rem; }
  .all td { display: grid; grid-template-columns: 7.5rem minmax(0, 1fr); padding: .15rem 0; border: 0; }
  .all td::before { content: attr(data-name); color: var(--muted); font-weight: 400; }
}
@media (max-width: 26rem) {
  .first { box-sizing: border-box; width: 100%; text-align: center; }
}
`
