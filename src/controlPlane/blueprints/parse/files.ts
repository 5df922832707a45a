/** The content of definition files before composition. No I/O. */

import type { Schema } from "effect"
import type { BackupRule } from "../../../contract/domain/BackupTarget.ts"
import type { BlueprintState } from "../../../contract/domain/Blueprint.ts"
import type { ConfigPatches } from "../../../contract/domain/ConfigPatch.ts"
import type { FileRules } from "../../../contract/domain/Files.ts"
import type { BlueprintSchedule } from "../../../contract/domain/Schedule.ts"
import type { Software } from "../../../contract/domain/Software.ts"
import type { Written } from "./decode.ts"
import type { Position } from "./located.ts"
import type { ServerPart } from "./parseServer.ts"
import { type StatePart, variablesOf } from "./parseState.ts"

export interface Composable {
  readonly server: ServerPart
  /** Null if the file has no `state`. */
  readonly state: StatePart | null
  readonly files: FileRules
  readonly backup: BackupRule
  readonly schedules: ReadonlyArray<BlueprintSchedule>
  readonly annotations: Readonly<Record<string, Schema.Json>>
}

/** An id that a file refers to, and its position. */
export interface Reference extends Position {
  readonly id: string
}

interface DefinitionFile {
  readonly file: string
  readonly at: Position
}

export interface BlueprintFile extends DefinitionFile, Composable {
  readonly kind: "blueprint"
  readonly id: string
  readonly name: string
  readonly type: string
  readonly includes: ReadonlyArray<Reference>
  readonly save: boolean
  readonly start?: boolean
}

export interface MixinFile extends DefinitionFile, Composable {
  readonly kind: "mixin"
  readonly id: string
  readonly description: string
  readonly extends: ReadonlyArray<Reference>
}

export interface SoftwareFile extends DefinitionFile {
  readonly kind: "software"
  readonly id: string
  readonly software: Software
}

export type AnyFile = BlueprintFile | MixinFile | SoftwareFile

const values = <A>(written: ReadonlyArray<Written<A>>): ReadonlyArray<A> => written.map(({ value }) => value)

/** Returns a state without positions. */
export const stateOf = ({ copy, env, mounts, volumes }: StatePart): BlueprintState => ({
  volumes: values(volumes),
  mounts: values(mounts),
  copy: values(copy),
  env: variablesOf(env)
})

/** Returns the patches of a server without positions. */
export const configsOf = (server: ServerPart): ConfigPatches =>
  Object.fromEntries(Object.entries(server.configs ?? {}).map(([file, { value }]) => [file, value]))
