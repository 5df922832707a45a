/** What definition files say, before composition. */

import type { Schema } from "effect"
import type { BlueprintState, PlacementRule, RestartRule } from "../domain/Blueprint.ts"
import type { ConfigPatches } from "../domain/ConfigPatch.ts"
import type { Limits } from "../domain/Limits.ts"
import type { Software } from "../domain/Software.ts"
import type { Position } from "./problem.ts"

/** `server:` of a blueprint or mixin, as far as it is given. */
export interface ServerPart {
  readonly software?: string
  readonly version?: string
  readonly image?: string
  readonly limits?: Limits
  readonly ports?: number
  readonly configs?: ConfigPatches
  readonly placement?: Partial<PlacementRule>
  readonly restart?: Partial<RestartRule>
}

/** What blueprints and mixins have in common. */
export interface Composable {
  readonly server: ServerPart
  /** null: the file has no `state`. */
  readonly state: BlueprintState | null
  readonly annotations: Readonly<Record<string, Schema.Json>>
}

/** An id that a file names, and where. */
export interface Reference extends Position {
  readonly id: string
}

interface DefinitionFile {
  /** Path relative to the folder. */
  readonly file: string
  /** Where the id stands. */
  readonly at: Position
}

export interface BlueprintFile extends DefinitionFile, Composable {
  readonly kind: "blueprint"
  readonly id: string
  readonly name: string
  readonly type: string
  readonly includes: ReadonlyArray<Reference>
  readonly save: boolean
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
