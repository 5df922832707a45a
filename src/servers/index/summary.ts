/** How a server looks to a caller (contract 2.3; decisions, section 3). */
import type { Server, ServerRecord } from "../../domain/Server.ts"

/** Fields of `include=` (decisions, section 3). */
export interface Include {
  readonly status: boolean
  readonly limits: boolean
  readonly software: boolean
}

/** The contract's own fields, nothing more. */
export const plain: Include = { status: false, limits: false, software: false }

/** Each combination of `include=` has a number from 0 (plain) to 7. */
export const VARIANTS = 8
const STATUS_BIT = 1

/** Number of a combination of `include=`. */
export const variantOf = (include: Include): number =>
  (include.status ? STATUS_BIT : 0) | (include.limits ? 2 : 0) | (include.software ? 4 : 0)

/** Whether a change of status shows in a variant. */
export const showsStatus = (variant: number): boolean => (variant & STATUS_BIT) !== 0

/** The summary, its fields in the contract's order; `overrides` only where there are any. */
export const summaryOf = (record: ServerRecord, node_name: string, include: Include): Server => {
  const { definition, overrides } = record
  return {
    id: record.id,
    blueprint_id: record.blueprint_id,
    node_name,
    node_id: record.node_id,
    allocations: record.allocations,
    ...(overrides !== undefined && Object.keys(overrides).length > 0 ? { overrides } : {}),
    ...(include.status ? { status: record.status } : {}),
    ...(include.limits ? { limits: definition.limits } : {}),
    ...(include.software
      ? { software: definition.software, version: definition.version, image: definition.image }
      : {}),
    ...(variantOf(include) > 0 ? { created_at: record.created_at } : {})
  }
}

/** JSON of the summary. */
export const encodeSummary = (record: ServerRecord, node_name: string, include: Include): string =>
  JSON.stringify(summaryOf(record, node_name, include))
