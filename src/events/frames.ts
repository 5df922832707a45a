const TEXT = 0x81
/** Longest messages whose length is in the second byte, and in two bytes after it. */
const SHORT = 125
const MEDIUM = 0xffff

/** Returns the frame of a text message in UTF-8 (RFC 6455, section 5.2): whole, not masked, not compressed. */
const frameOf = (message: Uint8Array): ReadonlyArray<Uint8Array> => {
  const { length } = message
  if (length <= SHORT) return [Uint8Array.of(TEXT, length), message]
  if (length <= MEDIUM) return [Uint8Array.of(TEXT, 126, length >> 8, length & 0xff), message]
  const head = Buffer.alloc(10)
  head.writeUInt16BE((TEXT << 8) | 127)
  head.writeBigUInt64BE(BigInt(length), 2)
  return [head, message]
}

/** Returns the frames of text messages, in parts. */
export const framesOf = (messages: ReadonlyArray<Uint8Array>): ReadonlyArray<Uint8Array> =>
  messages.flatMap(frameOf)
