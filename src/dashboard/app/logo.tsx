import type { View } from "../dom/el.ts"

/** The mark of Muster: three servers, one behind the other. */
export const logo = (): View => (
  <svg class="logo" viewBox="0 0 16 16" aria-hidden="true">
    {[<rect width={16} height={16} rx={4} />, <path d="M4 4.6h8M4 8h8M4 11.4h5" />]}
  </svg>
)
