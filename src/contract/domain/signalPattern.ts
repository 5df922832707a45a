/** Returns the pattern of an online signal; flags such as `(?i)` at its beginning apply to all of it. @throws SyntaxError */
export const signalPattern = (text: string): RegExp => {
  const [inline = "", flags = ""] = /^\(\?([ims]+)\)/.exec(text) ?? []
  return new RegExp(text.slice(inline.length), [...new Set(flags)].join(""))
}
