import type { JSX } from "preact"

/** The content of an element. */
export type View = JSX.Element

/** Joins the class names that apply. */
export const classes = (...names: ReadonlyArray<string | false | undefined>): string =>
  names.filter((name) => typeof name === "string" && name !== "").join(" ")
