/** Output without paths of the node. Pure. */

/** A path, and the text that takes its place. */
export type HiddenPath = readonly [path: string, shown: string]

const bytesOf = (text: string) => Buffer.from(text).toString("latin1")

/**
 * Replaces paths in a stream, however it is chunked. Of two paths that match, the first counts.
 *
 * @returns `filter`, which holds the beginning of a path back until the next chunk, and `rest`, which returns it
 */
export const hidePaths = (hidden: ReadonlyArray<HiddenPath>) => {
  const paths = hidden.map(([path, shown]) => [bytesOf(path), shown] as const)
  const longest = Math.max(0, ...paths.map(([path]) => path.length))
  let held = ""
  const replaced = (text: string) =>
    Buffer.from(
      paths.reduce((left, [path, shown]) => left.replaceAll(path, shown), text),
      "latin1"
    )

  return {
    filter: (bytes: Uint8Array): Uint8Array => {
      const text = held + Buffer.from(bytes).toString("latin1")
      let length = Math.min(longest, text.length)
      while (length > 0 && !paths.some(([path]) => path.startsWith(text.slice(-length)))) length--
      held = length === 0 ? "" : text.slice(-length)
      return replaced(text.slice(0, text.length - length))
    },
    rest: (): Uint8Array => {
      const text = held
      held = ""
      return replaced(text)
    }
  }
}
