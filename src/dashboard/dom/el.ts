import type { JSX } from "preact"

export type View = JSX.Element

export const onText =
  (change: (text: string) => void) =>
  ({ currentTarget }: { readonly currentTarget: { readonly value: string } }): void =>
    change(currentTarget.value)

export const classes = (...names: ReadonlyArray<string | false | undefined>): string =>
  names.filter((name) => typeof name === "string" && name !== "").join(" ")
