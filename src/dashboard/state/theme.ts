/** The theme: that of the system, unless the reader has chosen one. */
import { signal } from "@preact/signals"

export type Theme = "light" | "dark"

const ITEM = "muster.theme"
const system = matchMedia("(prefers-color-scheme: dark)")

const current = (): Theme => {
  const chosen = document.documentElement.dataset.theme
  return chosen === "light" || chosen === "dark" ? chosen : system.matches ? "dark" : "light"
}

export const theme = signal<Theme>(current())

system.addEventListener("change", () => {
  theme.value = current()
})

/** Changes to the other theme; the choice of the system's theme is not kept. */
export const toggleTheme = (): void => {
  const next: Theme = theme.value === "dark" ? "light" : "dark"
  const isSystem = (next === "dark") === system.matches
  if (isSystem) {
    delete document.documentElement.dataset.theme
    localStorage.removeItem(ITEM)
  } else {
    document.documentElement.dataset.theme = next
    localStorage.setItem(ITEM, next)
  }
  theme.value = next
}

const probe = document.createElement("span")
probe.hidden = true

/** The present value of a colour of the style sheet, for canvases. */
export const colour = (name: string): string => {
  if (!probe.isConnected) document.body.append(probe)
  probe.style.color = `var(--${name})`
  return getComputedStyle(probe).color
}
