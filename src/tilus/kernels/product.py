# SPDX-License-Identifier: Apache-2.0
"""The kernels behind :func:`tilus.kernels.matmul` that use TMA and WGMMA.

:class:`Product` has the design of the ladder's last version, and in addition: any sizes by one
program, either order of either operand in memory, K split over several blocks, and operands that
change places, so that few rows of C need few columns of WGMMA. :class:`Sums` adds up what a split
product leaves. The classes named after bfloat16 do the same for that type.
"""

import tilus
from tilus import bfloat16, float16, float32, int32, int64, uint32
from tilus.utils import cdiv

ROWS = 64  # of one WGMMA, and of a tile that leave a group at a time


class Ring(tilus.Class):
    """A ring of stages between one producer and several consumers, and where each of them is."""

    def __init__(self, num_stages, arrivals, turns):
        self.num_stages = num_stages
        self.full = self.mbarrier.alloc([1] * num_stages)
        self.empty = self.mbarrier.alloc([arrivals] * num_stages)
        if turns:
            self.turn = self.mbarrier.alloc([1] * turns)
        self.producer_stage: int32 = 0
        self.consumer_stage: int32 = 0
        self.producer_phase: uint32 = self.mbarrier.producer_initial_phase
        self.consumer_phase: uint32 = self.mbarrier.consumer_initial_phase

    def producer_acquire(self):
        """Wait until the producer's stage is empty."""
        self.mbarrier.wait(self.empty[self.producer_stage], phase=self.producer_phase)

    def producer_advance(self):
        """Go on to the next stage; behind the last one the ring begins anew, in the other phase."""
        self.producer_stage = (self.producer_stage + 1) % self.num_stages
        self.producer_phase = self.producer_phase ^ (self.producer_stage == 0)

    def consumer_acquire(self):
        """Wait until the consumer's stage is full."""
        self.mbarrier.wait(self.full[self.consumer_stage], phase=self.consumer_phase)

    def consumer_release(self, stage):
        """Say, by one thread of the running group, that it has done with a stage."""
        with self.single_thread():
            self.mbarrier.arrive(self.empty[stage])

    def consumer_advance(self):
        """Go on to the next stage."""
        self.consumer_stage = (self.consumer_stage + 1) % self.num_stages
        self.consumer_phase = self.consumer_phase ^ (self.consumer_stage == 0)

    def consumer_skip(self, steps):
        """Go on by several stages, which belong to another group."""
        rounds, stage = self.fast_divmod(self.consumer_stage + steps, self.num_stages)
        self.consumer_stage = stage
        self.consumer_phase = self.consumer_phase ^ uint32(rounds % 2)


class Product(tilus.Script):
    """C[m, n] = A[m, k] · B[k, n], sums in float32.

    WGMMA's left operand, x, is A, and its right one, y, is B; where ``swapped``, x is Bᵀ and y is
    Aᵀ, so that C is made in transposed tiles. A tile has ``block_m`` rows of x and ``block_n``
    columns of y. ``consumers`` warp groups share its rows, or, with ``turns``, each makes whole
    tiles in turn, so that one's results leave while another one multiplies.

    ``a_mn``: A lies in memory as [k, m], else as [m, k]; ``b_mn``: B lies as [k, n], else as
    [n, k]. A pitch counts elements from row to row of an array as it lies. ``direct``: results go
    from registers to C, whose rows TMA cannot address.

    With ``split_k`` above 1 every tile is made in as many parts of K, none of which is empty; they
    go to ``w_ptr`` [split_k, m, n], for :class:`Sums`.
    """

    dtype = float16

    def __init__(
        self,
        block_m,
        block_n,
        num_stages,
        num_blocks=132,
        group_m=8,
        consumers=2,
        split_k=1,
        swapped=False,
        turns=False,
        a_mn=False,
        b_mn=False,
        direct=False,
        block_k=64,
    ):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.num_stages = num_stages
        self.num_blocks = num_blocks
        self.group_m = group_m
        self.consumers = consumers
        self.split_k = split_k
        self.swapped = swapped
        self.turns = turns
        self.staged = split_k == 1 and not direct
        self.x_mn, self.y_mn = (b_mn, a_mn) if swapped else (a_mn, b_mn)
        self.sharers = 1 if turns else consumers  # groups that work on one tile
        self.own_m = block_m // self.sharers  # rows of each of them
        self.loader = consumers * 128  # the first thread behind the consumers
        # The register file is dealt out anew, so that accumulators fit; two groups have no need.
        self.budgets = {1: (None, None), 2: (24, 240), 3: (32, 160)}[consumers]

    def __call__(
        self,
        m_size: int32,
        n_size: int32,
        k_size: int32,
        a_pitch: int32,
        b_pitch: int32,
        c_pitch: int32,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
        w_ptr: ~float32,
    ):
        a, b, c = (m_size, a_pitch, a_ptr), (n_size, b_pitch, b_ptr), (c_pitch, c_ptr)
        if self.swapped:
            self.multiply(k_size, b, a, *c, w_ptr)
        else:
            self.multiply(k_size, a, b, *c, w_ptr)

    def multiply(self, k_size, x, y, c_pitch, c_ptr, w_ptr):
        """Make all of C; x and y are size, pitch and pointer of an operand."""
        (x_size, x_pitch, x_ptr), (y_size, y_pitch, y_ptr) = x, y
        tiles_x, tiles_y = cdiv(x_size, self.block_m), cdiv(y_size, self.block_n)
        parts = tiles_x * tiles_y * self.split_k
        self.attrs.blocks = min(self.num_blocks, parts)
        self.attrs.warps = 4 * self.consumers + 4

        gx = self.operand(x_ptr, x_size, k_size, x_pitch, self.x_mn)
        gy = self.operand(y_ptr, y_size, k_size, y_pitch, self.y_mn)
        sx = self.shared_tensor(
            dtype=self.dtype,
            shape=[self.num_stages, self.sharers, *self.box(self.own_m, self.x_mn)],
        )
        sy = self.shared_tensor(
            dtype=self.dtype, shape=[self.num_stages, *self.box(self.block_n, self.y_mn)]
        )
        target = self.target(x_size, y_size, c_pitch, c_ptr, w_ptr)
        ring = Ring(self.num_stages, self.sharers, self.consumers if self.turns else 0)

        grid = (parts, tiles_x, tiles_y, k_size)
        loaders = self.thread_group(self.loader, num_threads=128, registers=self.budgets[0])
        with loaders, self.single_warp():
            self.produce(ring, grid, (gx, sx), (gy, sy))
        for member in tuple(range(self.consumers)):
            with self.thread_group(128 * member, num_threads=128, registers=self.budgets[1]):
                self.consume(ring, grid, sx, sy, target, member)

    def target(self, x_size, y_size, c_pitch, c_ptr, w_ptr):
        """Return the view that results go to, and the shared memory that they leave through."""
        if self.staged:
            sizes = [y_size, x_size] if self.swapped else [x_size, y_size]
            tile = [self.block_n, ROWS] if self.swapped else [ROWS, self.block_n]
            gc = self.global_view(c_ptr, dtype=self.dtype, shape=sizes, strides=[c_pitch, 1])
            return gc, self.shared_tensor(dtype=self.dtype, shape=[self.consumers, *tile])
        if self.split_k > 1:
            strides = [int64(x_size) * y_size, *self.steps(x_size if self.swapped else y_size)]
            shape = [self.split_k, x_size, y_size]
            return self.global_view(w_ptr, dtype=float32, shape=shape, strides=strides), None
        shape = [x_size, y_size]
        return self.global_view(
            c_ptr, dtype=self.dtype, shape=shape, strides=self.steps(c_pitch)
        ), None

    def steps(self, pitch):
        """Return the strides along x and y of a result whose rows are so far apart."""
        return [1, pitch] if self.swapped else [pitch, 1]

    def produce(self, ring, grid, x, y):
        """Fill the ring, part after part, with boxes of both operands."""
        (gx, sx), (gy, sy) = x, y
        parts, tiles_x, tiles_y, k_size = grid
        for part in self.range(self.blockIdx.x, parts, self.gridDim.x):
            offset_x, offset_y, begin_k, end_k, _ = self.place(part, tiles_x, tiles_y, k_size)
            for offset_k in self.range(begin_k, end_k, self.block_k):
                ring.producer_acquire()
                stage = ring.producer_stage
                full = ring.full[stage]
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        full, transaction_bytes=sx[stage].nbytes + sy[stage].nbytes
                    )
                self.load_x(gx, sx[stage], offset_x, offset_k, full)
                self.load(gy, sy[stage], offset_y, offset_k, self.y_mn, full)
                ring.producer_advance()

        # Stay until every stage is empty again; those never filled are so from the start.
        for _ in self.range(self.num_stages):
            ring.producer_acquire()
            ring.producer_advance()

    def consume(self, ring, grid, x, y, target, member):
        """Multiply what the ring holds, and let each part's result leave."""
        parts, tiles_x, tiles_y, k_size = grid
        share, turn, others = (0, member, self.consumers - 1) if self.turns else (member, 0, 0)
        steps = cdiv(k_size, self.block_k)
        first: int32 = turn
        phase: uint32 = 1 - turn  # the first group's turn has come already
        if self.turns:
            ring.consumer_skip(first * steps)
        for part in self.range(
            self.blockIdx.x + first * self.gridDim.x, parts, self.gridDim.x * (1 + others)
        ):
            offset_x, offset_y, begin_k, end_k, number = self.place(
                part, tiles_x, tiles_y, k_size, share * self.own_m
            )
            acc = self.register_tensor(dtype=float32, shape=[self.own_m, self.block_n], init=0.0)
            if self.turns:  # a group that ran ahead would mistake an earlier phase for its own
                self.mbarrier.wait(ring.turn[turn], phase=phase)
                phase ^= 1
            last = self.add_products(ring, x, y, share, begin_k, end_k, acc)
            if self.turns:
                with self.single_thread():
                    self.mbarrier.arrive(ring.turn[1 - turn])
                ring.consumer_skip(others * steps)
            self.wgmma.wait_group(0)
            ring.consumer_release(last)
            for row in tuple(range(0, self.own_m, ROWS)):  # 64 rows leave at a time
                rows = self.slice(acc, offsets=[row, 0], shape=[ROWS, self.block_n])
                self.leave(target, member, rows, (number, offset_x + row, offset_y))
        if self.staged:
            with self.single_thread():
                self.tma.wait_group(0)  # shared memory is gone with its block

    def add_products(self, ring, x, y, share, begin_k, end_k, acc):
        """Add the products along a part of K; return the last one's stage, still in use."""
        previous: int32 = 0
        for offset_k in self.range(begin_k, end_k, self.block_k):
            ring.consumer_acquire()
            stage = ring.consumer_stage
            left = x[stage, share].transpose() if self.x_mn else x[stage, share]
            right = y[stage] if self.y_mn else y[stage].transpose()
            self.wgmma.fence()
            self.wgmma.mma(left, right, acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(1)  # the product before this one has finished
            if offset_k > begin_k:
                ring.consumer_release(previous)
            previous = stage
            ring.consumer_advance()
        return previous

    def operand(self, ptr, size, k_size, pitch, mn):
        """Return the view of an operand as it lies in memory."""
        shape = [k_size, size] if mn else [size, k_size]
        return self.global_view(ptr, dtype=self.dtype, shape=shape, strides=[pitch, 1])

    def box(self, size, mn):
        """Return the shape of what one step along K needs of an operand, as it lies in memory."""
        return (self.block_k, size) if mn else (size, self.block_k)

    def load(self, src, dst, offset, offset_k, mn, full):
        """Start the copy of one operand's box."""
        offsets = [offset_k, offset] if mn else [offset, offset_k]
        self.tma.global_to_shared(src=src, dst=dst, offsets=offsets, mbarrier=full)

    def load_x(self, gx, sx, offset_x, offset_k, full):
        """Start the copies for all consumer groups: one, where their rows follow one another."""
        if self.x_mn:
            for share in tuple(range(self.sharers)):
                self.load(gx, sx[share], offset_x + share * self.own_m, offset_k, True, full)
        else:
            self.load(gx, sx, offset_x, offset_k, False, full)

    def leave(self, target, member, rows, place):
        """Let rows of a tile go where results go; ``place`` is their part of K, x and y."""
        view, staging = target
        if self.staged:
            self.store(view, staging[member], self.cast(rows, dtype=self.dtype), *place[1:])
        elif self.split_k > 1:
            self.store_global(view, rows, offsets=place)
        else:
            self.store_global(view, self.cast(rows, dtype=self.dtype), offsets=place[1:])

    def store(self, gc, sc, rows, offset_x, offset_y):
        """Let rows of a tile leave through shared memory, while the group goes on."""
        with self.single_thread():
            self.tma.wait_group(0, read=True)  # the last ones have been read
        self.sync()
        self.store_shared(sc.transpose() if self.swapped else sc, rows)
        self.fence.proxy_async()  # each thread: what I have written, TMA will read
        self.sync()
        offsets = [offset_y, offset_x] if self.swapped else [offset_x, offset_y]
        with self.single_thread():
            self.tma.shared_to_global(sc, gc, offsets=offsets)
            self.tma.commit_group()

    def place(self, part, tiles_x, tiles_y, k_size, row=0):
        """Return where a part begins along x, at its ``row``, along y and K, where it ends there,
        and its number along K."""
        steps, tile, number = cdiv(k_size, self.block_k), part, 0
        begin_k, end_k = 0, k_size
        if self.split_k > 1:
            number, tile = self.fast_divmod(part, tiles_x * tiles_y)
            deep = cdiv(steps, self.split_k) * self.block_k
            begin_k = number * deep
            end_k = min(begin_k + deep, k_size)
        tile_x, tile_y = self.rasterise(tile, tiles_x, tiles_y)
        offset_x: int32 = tile_x * self.block_m + row
        offset_y: int32 = tile_y * self.block_n
        return offset_x, offset_y, begin_k, end_k, number

    def rasterise(self, tile, tiles_x, tiles_y):
        """Return the place of a tile: groups of ``group_m`` tile rows, walked column by column."""
        group, index = self.fast_divmod(tile, self.group_m * tiles_y)
        first = group * self.group_m
        rows = min(self.group_m, tiles_x - first)  # the last group may have fewer
        tile_y, row = self.fast_divmod(index, rows)
        return first + row, tile_y


class ProductBfloat16(Product):
    """:class:`Product` of bfloat16 operands."""

    dtype = bfloat16

    def __call__(
        self,
        m_size: int32,
        n_size: int32,
        k_size: int32,
        a_pitch: int32,
        b_pitch: int32,
        c_pitch: int32,
        a_ptr: ~bfloat16,
        b_ptr: ~bfloat16,
        c_ptr: ~bfloat16,
        w_ptr: ~float32,
    ):
        a, b, c = (m_size, a_pitch, a_ptr), (n_size, b_pitch, b_ptr), (c_pitch, c_ptr)
        if self.swapped:
            self.multiply(k_size, b, a, *c, w_ptr)
        else:
            self.multiply(k_size, a, b, *c, w_ptr)


class Sums(tilus.Script):
    """C[m, n] = the sum over the first dimension of W[split_k, m, n], in the order of the parts."""

    dtype = float16

    def __init__(self, split_k, block_m=8, block_n=128):
        super().__init__()
        self.split_k = split_k
        self.block_m = block_m
        self.block_n = block_n

    def __call__(
        self, m_size: int32, n_size: int32, c_pitch: int32, w_ptr: ~float32, c_ptr: ~float16
    ):
        self.add(m_size, n_size, c_pitch, w_ptr, c_ptr)

    def add(self, m_size, n_size, c_pitch, w_ptr, c_ptr):
        """Make all of C."""
        self.attrs.blocks = cdiv(n_size, self.block_n), cdiv(m_size, self.block_m)
        self.attrs.warps = 4
        offset_n: int32 = self.blockIdx.x * self.block_n
        offset_m: int32 = self.blockIdx.y * self.block_m
        gw = self.global_view(w_ptr, dtype=float32, shape=[self.split_k, m_size, n_size])
        gc = self.global_view(c_ptr, dtype=self.dtype, shape=[m_size, n_size], strides=[c_pitch, 1])
        parts = [
            self.load_global(
                gw, offsets=[part, offset_m, offset_n], shape=[self.block_m, self.block_n]
            )
            for part in range(self.split_k)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        self.store_global(gc, self.cast(total, dtype=self.dtype), offsets=[offset_m, offset_n])


class SumsBfloat16(Sums):
    """:class:`Sums` to bfloat16."""

    dtype = bfloat16

    def __call__(
        self, m_size: int32, n_size: int32, c_pitch: int32, w_ptr: ~float32, c_ptr: ~bfloat16
    ):
        self.add(m_size, n_size, c_pitch, w_ptr, c_ptr)
