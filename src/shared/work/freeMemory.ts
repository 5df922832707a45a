/**
 * Frees the memory of a piece at once, if it is a buffer of its own, and leaves the piece empty. Without this, the garbage
 * collector lets 64 MiB of buffers gather. Only for pieces that no other code has.
 */
export const freeMemory = ({ buffer, byteLength }: Uint8Array): void => {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0)
}
