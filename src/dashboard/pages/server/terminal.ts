import { effect } from "@preact/signals"
import type { ITheme, Terminal } from "@xterm/xterm"
import { colour, theme } from "../../state/theme.ts"
import { cleanLine } from "./consoleStream.ts"

const SCROLLBACK = 5000

/** Stands for a style element: its text becomes a constructed sheet, as the policy allows no inline styles. */
const sheetElement = (): HTMLElement => {
  const element = create("template")
  const sheet = new CSSStyleSheet()
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) })
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet)
  }
  return element
}

/** Sets the attribute `style` as properties, for the same reason. */
function setAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === "style") this.style.cssText = value
  else Element.prototype.setAttribute.call(this, name, value)
}

const create = Document.prototype.createElement.bind(document)

const createStyleSafe = (tag: string): HTMLElement => {
  if (tag === "style") return sheetElement()
  const element = create(tag)
  element.setAttribute = setAttribute
  return element
}

const styleSafeDocument = new Proxy(document, {
  get: (target, name) => {
    if (name === "createElement") return createStyleSafe
    const value: unknown = Reflect.get(target, name, target)
    return typeof value === "function" ? value.bind(target) : value
  }
})

/** Opens a terminal, one part of which takes the document of the page whatever its options say. */
const openStyleSafe = (terminal: Terminal, element: HTMLElement): void => {
  Object.assign(document, { createElement: createStyleSafe })
  try {
    terminal.open(element)
  } finally {
    Reflect.deleteProperty(document, "createElement")
  }
}

/** The hues of the terminal, and the colours of the style sheet that they have. */
const hues = { Red: "red", Green: "green", Yellow: "amber", Blue: "blue", Magenta: "violet", Cyan: "blue" }

const themeOf = (): ITheme => {
  const ink = colour("ink")
  const muted = colour("muted")
  return {
    background: colour("surface"),
    foreground: ink,
    cursor: "transparent",
    selectionBackground: colour("accent-soft"),
    black: ink,
    brightBlack: muted,
    white: muted,
    brightWhite: ink,
    ...Object.fromEntries(
      Object.entries(hues).flatMap(([hue, of]) => [
        [hue.toLowerCase(), colour(of)],
        [`bright${hue}`, colour(of)]
      ])
    )
  }
}

export interface ConsoleTerminal {
  /** Adds lines; those of a frame are written together. */
  readonly write: (lines: ReadonlyArray<string>) => void
  readonly replace: (lines: ReadonlyArray<string>) => void
  readonly close: () => void
}

/** The terminal is larger than the rest of the dashboard. */
export const loadXterm = async () => ({
  ...(await import("@xterm/xterm")),
  ...(await import("@xterm/addon-fit"))
})

export const openTerminal = (
  { FitAddon, Terminal }: Awaited<ReturnType<typeof loadXterm>>,
  element: HTMLElement
): ConsoleTerminal => {
  const terminal = new Terminal({
    documentOverride: styleSafeDocument,
    convertEol: true,
    disableStdin: true,
    scrollback: SCROLLBACK,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
    fontSize: 12.5,
    lineHeight: 1.25,
    minimumContrastRatio: 4.5,
    screenReaderMode: true,
    // Links in the output of a server lead nowhere.
    linkHandler: { activate: () => {} }
  })
  const fit = new FitAddon()
  terminal.loadAddon(fit)
  openStyleSafe(terminal, element)
  terminal.textarea?.setAttribute("aria-label", "Console output")
  // Tab leaves the console, as every other part of the page.
  terminal.attachCustomKeyEventHandler((event) => event.key !== "Tab" && event.key !== "Escape")
  const sized = new ResizeObserver(() => fit.fit())
  sized.observe(element)
  const themed = effect(() => {
    theme.value
    terminal.options.theme = themeOf()
  })
  let waiting: Array<string> = []
  let frame = 0
  const flush = () => {
    frame = 0
    const text = waiting.map((line) => `${cleanLine(line)}\r\n`).join("")
    waiting = []
    terminal.write(text)
  }
  const write = (lines: ReadonlyArray<string>) => {
    waiting.push(...lines.slice(-SCROLLBACK))
    if (waiting.length > SCROLLBACK) waiting = waiting.slice(-SCROLLBACK)
    if (frame === 0) frame = requestAnimationFrame(flush)
  }
  return {
    write,
    replace: (lines) => {
      waiting = []
      terminal.reset()
      write(lines)
    },
    close: () => {
      cancelAnimationFrame(frame)
      themed()
      sized.disconnect()
      terminal.dispose()
    }
  }
}
