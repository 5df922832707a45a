// CSI, OSC (ended by BEL or ST), other escapes, and the other C0 characters except the tab.
const escapes =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]|[\u0000-\u0008\u000b-\u001f\u007f]/g

/** Removes ANSI sequences and other control characters from a line. */
export const stripAnsi = (line: string): string => line.replace(escapes, "")
