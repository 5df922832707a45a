/** The terminal, a file of its own: only consoles load it. */
export { FitAddon } from "@xterm/addon-fit"
export { Terminal } from "@xterm/xterm"
