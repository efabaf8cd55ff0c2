"""Where a lane keeps what: indices into its rows of `state` (int64) and `memory` (uint8), and into a canvas
(uint8).

A few arrays instead of a dozen keep the calls between kernels cheap. Booleans are 0 or 1. Everything that
decides the future lies in the first SAVED words of `state` and in `memory`; the words behind are scratch that
a kernel fills before it reads them.
"""

# CPU
PC = 0  # program counter
A = 1
X = 2
Y = 3
SP = 4  # stack pointer, the low byte
STATUS = 5  # processor status in nes-py's bit order, see cpu.py
DUE = 6  # CPU cycle, counted from the start of the frame (first = 1), at which the next instruction runs
CYCLE_PARITY = 7  # parity of all CPU cycles before this frame; sprite DMA takes a cycle more on odd ones

# PPU time
POSITION = 8  # next dot of the picture: 341 * line + dot; line 0 = pre-render, 1..240 visible, 242 = vertical blank
DOTS_DONE = 9  # PPU dots processed since the start of the frame
EVEN = 10  # an odd picture loses a dot of its pre-render line while the picture is on

# PPU registers
NMI_ENABLED = 11
TALL_SPRITES = 12
BACKGROUND_TABLE = 13  # address of the pattern table: 0 or 0x1000
SPRITE_TABLE = 14
INCREMENT = 15  # what an access to $2007 adds to the address: 1 or 32
SHOW_BACKGROUND = 16
SHOW_SPRITES = 17
SHOW_BACKGROUND_EDGE = 18  # the 8 leftmost columns
SHOW_SPRITES_EDGE = 19
ADDRESS = 20  # "v": video address, which scans the name tables while the picture is drawn
NEXT_ADDRESS = 21  # "t": what the address is reloaded from
FINE_X = 22
FIRST_WRITE = 23  # of the two writes to $2005 or $2006
READ_BUFFER = 24  # $2007 answers one read late
SPRITE_ADDRESS = 25
VBLANK = 26
SPRITE_ZERO_HIT = 27
NMI_PENDING = 28
HIT_POSITION = 29  # where sprite 0 will hit: a position, HIT_NEVER in this picture, or HIT_UNKNOWN
VERTICAL_MIRRORING = 30

# Controllers
BUTTONS = 31
BUTTON_BITS = 32  # what is left to shift out of the first controller
STROBE = 33

# Sprites on the line that is drawn now: they were chosen at the end of the line before
SPRITE_COUNT = 34
SPRITE_LIST = 35  # 8 entries

PICTURE = 43  # PICTURE_NONE, PICTURE_UNDRAWN, or PICTURE_GRAY: the batch keeps this frame's gray picture

SAVED = 44
PIXEL_GROUPS = 44  # scratch: bit i set if gray row i must be made from pixels on the canvas
LINE_COLORS = 45  # scratch: 34 words of 8 pixels, the colour of a line's background
LINE_OPAQUE = 79  # scratch: 34 words of 8 pixels, 1 where the background is opaque
CELLS = 113  # scratch: 62 words, brightness of the cells of a gray row
STATE_WORDS = 175

HIT_UNKNOWN = -1
HIT_NEVER = 1 << 40

RAM = 0  # 2048 bytes
NAME_TABLES = 2048  # 2048 bytes
SPRITES = 4096  # 256 bytes: 64 sprites of y, tile, attributes, x
PALETTE = 4352  # 32 bytes
MEMORY_BYTES = 4384

# The canvas that a drawn frame is drawn on: 240 rows of 256 colours (0..63), then the small gray picture
SCREEN_HEIGHT, SCREEN_WIDTH = 240, 256
GRAY_HEIGHT, GRAY_WIDTH = 50, 60
GRAY_TOP, GRAY_LEFT = 32, 8  # the status bar and 8 columns on either side are cut off
GRAY = SCREEN_HEIGHT * SCREEN_WIDTH
GRAY_BYTES = GRAY_HEIGHT * GRAY_WIDTH
CANVAS_BYTES = GRAY + GRAY_BYTES

# What `run_frame` draws
DRAW_NOTHING, DRAW_GRAY, DRAW_SCREEN = range(3)
PICTURE_NONE, PICTURE_UNDRAWN, PICTURE_GRAY = range(3)

LINE_DOTS = 341
VISIBLE_END = 241 * LINE_DOTS
NMI_POSITION = 242 * LINE_DOTS
PICTURE_DOTS = 262 * LINE_DOTS
FRAME_CYCLES = 29781  # nes-py's frame: one or two dots longer than a picture
