# SPDX-License-Identifier: Apache-2.0
"""The kernel behind :func:`tilus.kernels.matmul` in which two blocks share rows of A.

Rows that lie across lines of the L2 cache, as those of 4016 bytes do, take time by their number.
Two blocks of a cluster make tiles side by side, which need the same rows of A. Each asks for half
of them, and TMA brings them to both.
"""

from tilus.kernels.product import Product, ProductBfloat16, Ring
from tilus.utils import cdiv

BOTH = 0b11  # a bit for each block of a pair


class PairRing(Ring):
    """A ring of stages that two blocks fill together: a stage is refilled when both are done."""

    def consumer_release(self, stage):
        """Say to both blocks, by one thread of the running group, that it has done with a stage."""
        with self.single_thread():
            for block in (0, 1):  # relaxed: tensor cores have read, and nobody has written
                self.mbarrier.arrive_remote(self.empty[stage], rank=block, sem="relaxed")


class Pairs(Product):
    """:class:`~tilus.kernels.product.Product` by clusters of two blocks, which share rows of A.

    Two consumer groups share a tile, and each block loads for both what one of the groups reads.
    ``num_blocks`` is even. Where the columns of tiles are odd in number, the last pair has a tile
    beyond the edge: TMA fills it with zeros, and stores nothing of it. No block leaves too early:
    its loader stays until the groups of both blocks have released all of its stages.
    """

    def __init__(self, block_m, block_n, num_stages, cluster=2, **others):
        super().__init__(block_m, block_n, num_stages, **others)

    def multiply(self, k_size, x, y, c_pitch, c_ptr, w_ptr):
        """Make all of C; x and y are size, pitch and pointer of an operand."""
        (x_size, x_pitch, x_ptr), (y_size, y_pitch, y_ptr) = x, y
        tiles_x, tiles_y = cdiv(x_size, self.block_m), 2 * cdiv(y_size, 2 * self.block_n)
        parts = tiles_x * tiles_y
        self.attrs.blocks = min(self.num_blocks, parts)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 12

        gx = self.operand(x_ptr, x_size, k_size, x_pitch, self.x_mn)
        gy = self.operand(y_ptr, y_size, k_size, y_pitch, self.y_mn)
        box_x, box_y = self.box(self.own_m, self.x_mn), self.box(self.block_n, self.y_mn)
        sx = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, 2, *box_x])
        sy = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, *box_y])
        target = self.target(x_size, y_size, c_pitch, c_ptr, w_ptr)
        ring = PairRing(self.num_stages, 4, 0)  # two groups of each block
        self.cluster.sync()  # now each block may use the other one's barriers

        grid = (parts, tiles_x, tiles_y, k_size)
        loaders = self.thread_group(self.loader, num_threads=128, registers=self.budgets[0])
        with loaders, self.single_warp():
            self.produce(ring, grid, (gx, sx), (gy, sy))
        for member in (0, 1):
            with self.thread_group(128 * member, num_threads=128, registers=self.budgets[1]):
                self.consume(ring, grid, sx, sy, target, member)

    def load_x(self, gx, sx, offset_x, offset_k, full):
        """Start the copy, to both blocks, of the rows of x that are this block's to load."""
        rank = self.cluster.blockRank
        offset = offset_x + rank * self.own_m
        offsets = [offset_k, offset] if self.x_mn else [offset, offset_k]
        self.tma.global_to_shared(gx, sx[rank], offsets, full, multicast_mask=BOTH)

    def rasterise(self, tile, tiles_x, tiles_y):
        """Return the place of a tile: pairs are walked like tiles of twice the columns."""
        pair, side = self.fast_divmod(tile, 2)  # the side is the block's rank: blocks are even
        tile_x, tile_y = super().rasterise(pair, tiles_x, tiles_y // 2)
        return tile_x, 2 * tile_y + side


class PairsBfloat16(Pairs, ProductBfloat16):
    """:class:`Pairs` of bfloat16 operands."""
