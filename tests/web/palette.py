"""Pictures of pages made small: with 256 colours instead of millions, which nobody sees in a page of text."""

import base64
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# A browser can read any picture. Of colours that are hardly to be told apart the most frequent stays.
_READ = """
async (address) => {
  const picture = await createImageBitmap(await (await fetch(address)).blob());
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, picture.width, picture.height).data.buffer);
  const counts = new Map();
  for (const each of pixels) counts.set(each, (counts.get(each) || 0) + 1);
  const parts = (colour) => [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
  const distance = ([r, g, b], [x, y, z]) => 2 * (r - x) ** 2 + 4 * (g - y) ** 2 + (b - z) ** 2;
  const all = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
  let palette;
  for (let least = 4; !palette || palette.length > 256; least *= 1.5) {
    palette = [];
    for (const each of all.map(parts)) if (palette.every((other) => distance(each, other) > least)) palette.push(each);
  }
  const nearest = new Map();
  for (const colour of all) {
    const far = palette.map((each) => distance(parts(colour), each));
    nearest.set(colour, far.indexOf(Math.min(...far)));
  }
  const found = Uint8Array.from(pixels, (each) => nearest.get(each));
  let text = "";
  for (let at = 0; at < found.length; at += 8192) text += String.fromCharCode(...found.subarray(at, at + 8192));
  return [picture.width, picture.height, palette.flat(), btoa(text)];
}
"""


def write(page: "Page", picture: bytes, file: Path) -> None:
    """Writes a picture with a palette. `page` is one that may do anything, such as `about:blank`."""
    address = "data:image/png;base64," + base64.b64encode(picture).decode()
    width, height, palette, text = page.evaluate(_READ, address)
    found = base64.b64decode(text)
    lines = b"".join(b"\0" + found[at : at + width] for at in range(0, len(found), width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", bytes(palette)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
