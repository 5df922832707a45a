/** How much of a disk stays free. Pure. */

const MIB = 1024 * 1024
const LARGEST_RESERVE = 16 * MIB

/** Free bytes below which a disk counts as full: less than one commit may need. */
export const FULL_BELOW = MIB

/** Bytes of a disk that are kept for the service and the daemon: 16 MiB, or an eighth of a small disk. */
export const reserveSize = (total: number): number => Math.min(LARGEST_RESERVE, Math.floor(total / 8))

/** Free bytes from which the reserve is made: half as much again is left for writes. */
export const roomForReserve = (total: number): number => reserveSize(total) * 1.5
