/** Elements as functions, with typed properties, in place of JSX. */
import { type ComponentChildren, h, type JSX } from "preact"

/** The content of an element. */
export type View = JSX.Element

type Tag = keyof JSX.IntrinsicElements

const el =
  <T extends Tag>(tag: T) =>
  (props: JSX.IntrinsicElements[T], ...children: Array<ComponentChildren>): View =>
    // The tag decides the properties, and h cannot relate a generic tag to them.
    h(tag as string, props as object, ...children)

export const a = el("a")
export const article = el("article")
export const aside = el("aside")
export const button = el("button")
export const code = el("code")
export const datalist = el("datalist")
export const dd = el("dd")
export const del = el("del")
export const details = el("details")
export const dialog = el("dialog")
export const div = el("div")
export const dl = el("dl")
export const dt = el("dt")
export const fieldset = el("fieldset")
export const figcaption = el("figcaption")
export const figure = el("figure")
export const form = el("form")
export const h1 = el("h1")
export const h2 = el("h2")
export const h3 = el("h3")
export const header = el("header")
export const input = el("input")
export const ins = el("ins")
export const kbd = el("kbd")
export const label = el("label")
export const legend = el("legend")
export const li = el("li")
export const main = el("main")
export const nav = el("nav")
export const ol = el("ol")
export const option = el("option")
export const p = el("p")
export const pre = el("pre")
export const section = el("section")
export const select = el("select")
export const span = el("span")
export const strong = el("strong")
export const summary = el("summary")
export const table = el("table")
export const tbody = el("tbody")
export const td = el("td")
export const textarea = el("textarea")
export const th = el("th")
export const thead = el("thead")
export const time = el("time")
export const tr = el("tr")
export const ul = el("ul")

/** Joins the class names that apply. */
export const classes = (...names: ReadonlyArray<string | false | undefined>): string =>
  names.filter((name) => typeof name === "string" && name !== "").join(" ")
