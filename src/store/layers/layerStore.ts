import { Layer } from "effect"
import { layerExpiryClock } from "../ExpiryClock.ts"
import { IdempotencyRepo } from "../IdempotencyRepo.ts"
import { Journal } from "../Journal.ts"
import { JournalFollowers } from "../JournalFollowers.ts"
import { KeyRepo } from "../KeyRepo.ts"
import { MoveRepo } from "../MoveRepo.ts"
import { NodeKeyRepo } from "../NodeKeyRepo.ts"
import { NodeRepo } from "../NodeRepo.ts"
import type { RetentionOptions } from "../Retention.ts"
import { RoomRepo } from "../RoomRepo.ts"
import { SecretRepo } from "../SecretRepo.ts"
import { ServerRepo } from "../ServerRepo.ts"
import { Store } from "../Store.ts"
import { TicketRepo } from "../TicketRepo.ts"

export interface StoreOptions {
  readonly retention?: RetentionOptions
  /**
   * Whether a service runs on the store, and not a command: then a database file gets a reserve, for when its disk is
   * full, and expiry does not follow a clock that jumps. Default: false.
   */
  readonly isService?: boolean
}

/** What expiry goes by. */
export const expiryClock = ({ isService = false }: StoreOptions) =>
  isService ? layerExpiryClock : Layer.empty

/** Everything that reads and writes, over a database whose schema is up to date. */
export const layerRepositories = Layer.mergeAll(
  Store.layer,
  Journal.layer,
  SecretRepo.layer,
  ServerRepo.layer,
  MoveRepo.layer,
  RoomRepo.layer,
  NodeRepo.layer,
  KeyRepo.layer,
  NodeKeyRepo.layer,
  IdempotencyRepo.layer,
  TicketRepo.layer
).pipe(Layer.provideMerge(JournalFollowers.layer))
