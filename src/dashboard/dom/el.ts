import type { JSX } from "preact"

/** The content of an element. */
export type View = JSX.Element

/** Handles input: hands the present text of an element over. */
export const onText =
  (change: (text: string) => void) =>
  ({ currentTarget }: { readonly currentTarget: { readonly value: string } }): void =>
    change(currentTarget.value)

/** Joins the class names that apply. */
export const classes = (...names: ReadonlyArray<string | false | undefined>): string =>
  names.filter((name) => typeof name === "string" && name !== "").join(" ")
