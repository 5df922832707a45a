/** The examples in `blueprints/README.md` and `software/README.md`. */
import { readFileSync } from "node:fs"
import { resolve as resolvePath } from "node:path"
import type { AnyFile } from "../../../../src/controlPlane/blueprints/parse/files.ts"
import { type Folder, parseFile } from "../../../../src/controlPlane/blueprints/parse/parse.ts"
import { type Block, blocksOf } from "../../../support/markdown.ts"

const textOf = (folder: Folder) =>
  readFileSync(resolvePath(import.meta.dirname, "../../../..", folder, "README.md"), "utf8")
/** The two references. */
export const texts = { blueprints: textOf("blueprints"), software: textOf("software") }

/** A printed definition, and the message of its refusal if there is one. */
export interface Example {
  readonly folder: Folder
  readonly file: string
  readonly code: string
  readonly refusal: string | undefined
}

const examplesOf = (folder: Folder): ReadonlyArray<Example> => {
  const blocks = blocksOf(texts[folder])
  return blocks.flatMap(({ code, language }, index): ReadonlyArray<Example> => {
    if (language !== "yaml") return []
    const next: Block | undefined = blocks[index + 1]
    const refusal = next?.language === "text" && next.title === "" ? next.code : undefined
    const id = /\bid: ([a-z-]+)/.exec(code)?.[1]
    const file = /^# ([\w/]+\.yml)/.exec(code)?.[1] ?? `${id}.yml`
    return [{ folder, file, code, refusal }]
  })
}

/** All examples of both references, in order. */
export const examples = [...examplesOf("blueprints"), ...examplesOf("software")]
/** The valid examples. */
export const sound = examples.filter(({ refusal }) => refusal === undefined)

export const read = ({ code, file, folder }: Pick<Example, "folder" | "file" | "code">) =>
  parseFile(folder, file, new TextEncoder().encode(code))

export const definitionsOf = (files: ReadonlyArray<Example>): ReadonlyArray<AnyFile> =>
  files.flatMap((example) => read(example).definition ?? [])
