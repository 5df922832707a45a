import { randomUUID } from "node:crypto"

const acceptable = /^[A-Za-z0-9._-]{1,128}$/

/** Returns the inbound `X-Request-Id` if it is acceptable, else a new one (decisions, section 1). */
export const requestIdOf = (inbound: string | undefined): string =>
  inbound !== undefined && acceptable.test(inbound) ? inbound : randomUUID()
