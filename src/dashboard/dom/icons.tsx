import type { View } from "./el.ts"

const paths = {
  archive: "M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.8h3",
  check: "M3.5 8.5l3 3 6-7",
  clock: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 4.8V8l2.4 1.6",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  crash: "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.1",
  dots: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  download: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13.5h10",
  events: "M2 8.5h2.5L6.5 3l3 10 2-4.5H14",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  folder: "M2 4h4.5L8 5.5h6v7.5H2z",
  gear: "M8 5.6a2.4 2.4 0 1 1 0 4.8 2.4 2.4 0 0 1 0-4.8zM8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6L5 5M11 11l1.4 1.4M12.4 3.6L11 5M5 11l-1.4 1.4",
  key: "M5 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM7.8 8H14M11.3 8v2.3M13.8 8v1.9",
  layers: "M8 2.3l6 3-6 3-6-3zM2.4 8.2L8 11l5.6-2.8M2.4 11L8 13.8l5.6-2.8",
  link: "M6.5 9.5l3-3M7 4.8l1.4-1.4a3 3 0 0 1 4.2 4.2L11.2 9M9 11.2l-1.4 1.4a3 3 0 0 1-4.2-4.2L4.8 7",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z",
  node: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M4.5 2.8v10.4L13 8z",
  plus: "M8 3v10M3 8h10",
  restart: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  send: "M14 2.5L7 9.5M14 2.5L9.5 14 7 9.5 2 7z",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.4 10.4L14 14",
  servers: "M3 4.2h10M3 8h10M3 11.8h10",
  stop: "M4 4h8v8H4z",
  sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM8 1.5v1.4M8 13.1v1.4M1.5 8h1.4M13.1 8h1.4M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  tray: "M2.5 9.5l1.8-6.5h7.4l1.8 6.5v4h-11zM2.5 9.5h3l1 1.8h3l1-1.8h3",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9"
} as const

export type IconName = keyof typeof paths

/** An icon beside a text or in a labelled button; assistive technology skips it. */
export const icon = (name: IconName): View => (
  <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    {[<path d={paths[name]} />]}
  </svg>
)

/** The mark of Muster: three servers, one behind the other. */
export const logo = (): View => (
  <svg class="logo" viewBox="0 0 16 16" aria-hidden="true">
    {[<rect width={16} height={16} rx={4} />, <path d="M4 4.6h8M4 8h8M4 11.4h5" />]}
  </svg>
)
