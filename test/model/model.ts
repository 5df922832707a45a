/** What the model knows of the definitions that a run uses. */
import { committedMemoryBytes } from "../../src/domain/Limits.ts"
import type { CreateBody } from "./History.ts"

interface Kind {
  readonly save: boolean
  readonly ports: number
  /** MiB; undefined: no limit. */
  readonly memory: number | undefined
}

export const kinds: Readonly<Record<string, Kind>> = {
  kept: { save: true, ports: 1, memory: 64 },
  passing: { save: false, ports: 1, memory: 64 },
  wide: { save: true, ports: 2, memory: 128 },
  boundless: { save: false, ports: 1, memory: undefined }
}

/** Whether the servers of a blueprint go once they have run. */
export const isEphemeral = ({ blueprint_id }: Pick<CreateBody, "blueprint_id">): boolean =>
  kinds[blueprint_id]?.save === false

/** What a server of a blueprint takes of a node, in bytes. */
export const memoryOf = (blueprint_id: string): number => {
  const memory = kinds[blueprint_id]?.memory
  return committedMemoryBytes(memory === undefined ? {} : { memory_limit: memory })
}
