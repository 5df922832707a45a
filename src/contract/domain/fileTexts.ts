/** Texts about files that commands and dashboard share. It imports nothing: the browser loads it. */

/**
 * Characters that are not seen or that change what is seen, and blanks that a page or an eye joins. A backslash that
 * begins an escape is one of them: no two names look alike.
 */
const unseen =
  /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}|(?<![^/ ]) | (?![^/])|\\(?=u[\da-f]{4})/gu

const escaped = (found: string): string =>
  Array.from(
    { length: found.length },
    (_, at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`
  ).join("")

/** Returns a name or path for people: control, invisible and reordering characters are the escapes of JSON. */
export const legible = (name: string): string => name.replace(unseen, escaped)

/** What a start does with managed keys (spec 10.2); their names follow. */
export const WRITTEN_AGAIN = "The next start writes these keys again: "
