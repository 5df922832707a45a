/** Clients that openapi-generator makes from the document of a running service. */
import { execFileSync } from "node:child_process"
import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import { runToEnd } from "../../../support/child.ts"
import { writeFiles } from "../../../support/definitions.ts"
import { Muster } from "../../../support/Muster.ts"
import type { Service } from "../../../support/Service.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { service } from "./http.ts"

/**
 * The versions of openapi-generator, newest first, the document that each reads, its library of Java, and which of Go and
 * Python it supports. Version 6.6.0 makes a Python module without a name for the path `/`. Version 5.4.0 writes Go
 * that does not compile for a reference that may be null. Every version supports Java and TypeScript.
 */
export const GENERATORS = [
  { version: "7.25.0", document: "openapi.json", java: "native", go: true, python: true },
  { version: "7.25.0", document: "openapi-3.0.json", java: "okhttp-gson", go: true, python: true },
  { version: "6.6.0", document: "openapi-3.0.json", java: "native", go: true, python: false },
  { version: "5.4.0", document: "openapi-3.0.json", java: "okhttp-gson", go: false, python: true }
] as const
export type Generator = (typeof GENERATORS)[number]

/** The compiler of TypeScript for the generated types. */
export const TYPESCRIPT = "typescript@5.9.3"

/** Options of Java for programs of a few seconds: the second compiler takes twice the time that it saves. */
export const JAVA_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] as const

/** Generators and package managers take their time. */
export const slow = { timeout: 600_000 }

/** Whether a command of the shell succeeds: a tool is installed, and its registry can be reached. */
export const works = (command: string): boolean => {
  try {
    execFileSync("sh", ["-c", command], { stdio: "ignore", timeout: 120_000 })
    return true
  } catch {
    return false
  }
}

/** What the title of a skipped test says. */
export const named = (has: boolean, what: string) => (has ? "" : ` (skipped: needs ${what})`)

const jars = join("/tmp", "muster-test-generator")
const jarOf = ({ version }: Generator) => join(jars, version, "openapi-generator-cli.jar")
const copied = (generator: Generator): boolean =>
  works(
    `test -f ${jarOf(generator)} || mvn -q -B dependency:copy -Dartifact=org.openapitools:openapi-generator-cli:${generator.version} -DoutputDirectory=${join(jars, generator.version)} -Dmdep.stripVersion=true`
  )
const hasJava = works("javac -version")
/** The versions that the registry has. */
export const generators = hasJava ? GENERATORS.filter(copied) : []
export const hasGo = works("go version && go list -m -versions github.com/stretchr/testify")
export const hasNpm = works(`npm view ${TYPESCRIPT} version`)

/** A folder with the document of a running service. */
export class Described extends Context.Service<
  Described,
  { readonly api: Service; readonly folder: string }
>()("test/Described") {
  static readonly layer = Layer.effect(
    Described,
    Effect.gen(function* () {
      const api = yield* Muster
      const folder = yield* temporaryFolder
      for (const name of ["openapi.json", "openapi-3.0.json"]) {
        const { text } = yield* api.request("GET", `/${name}`, { key: null })
        yield* writeFiles(folder, { [name]: text })
      }
      return { api, folder }
    })
  )
}

/** A running service and its document, for the tests of a file. */
export const described = Described.layer.pipe(Layer.provideMerge(service()))

/** Generates a client into a folder of its own, and returns the folder. */
export const generate = Effect.fnUntraced(function* (
  generator: Generator,
  language: string,
  ...options: ReadonlyArray<string>
) {
  const { folder } = yield* Described
  const target = join(yield* temporaryFolder, "client")
  yield* runToEnd(
    [
      "java",
      ...JAVA_OPTIONS,
      // Version 6 for Python reads fields of the JDK.
      "--add-opens=java.base/java.util=ALL-UNNAMED",
      "--add-opens=java.base/java.lang=ALL-UNNAMED",
      "-jar",
      jarOf(generator),
      "generate",
      "--input-spec",
      join(folder, generator.document),
      "--generator-name",
      language,
      "--output",
      target,
      "--global-property",
      "apiTests=false,modelTests=false,apis,models,supportingFiles",
      ...options
    ],
    { cwd: folder }
  )
  return target
})
