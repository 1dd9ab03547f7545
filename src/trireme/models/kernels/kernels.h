// Inner loops behind models/functions.h for float32 on CPUs, with one table per instruction set.
//
// Every result depends only on the values: not on addresses, on neighbouring rows, or on how a caller divides rows
// among threads. Instruction sets differ in the last bits. Threads: all; there is no shared state.
#pragma once

#include <cstdint>

// Not trireme::kernels, which belongs to comm: the two would clash silently at run time.
namespace trireme::model_kernels {

/// Columns of B that are adjacent in a packed matrix: [columns / panel][depth][panel], zeros after the last column.
struct GemmShape {
  int64_t rows_per_tile;
  int64_t panel;
};

/// A matrix in memory: element (i, j) is data[i · row + j · column].
struct Matrix {
  const float* data;
  int64_t row, column;
};

/// One block of C = A · B. Either stride of A is 1.
struct GemmBlock {
  Matrix a;
  const float* packed_b;
  int64_t columns, depth;  ///< depth is at most kMaxDepth
  float* c;
  int64_t c_row;
  const float* bias;  ///< added to each row; null for none
  bool accumulate;    ///< adds to C; the bias is then ignored
};
constexpr int64_t kMaxDepth = 256;

/// One head of one sample of a tensor [batch, seq, heads, head_dim] whose last stride is 1.
struct Heads {
  float* data;
  int64_t row;  ///< stride from token to token
};

/// One key head and the query heads that use it.
struct AttentionShape {
  int64_t seq, head_dim, uses;
  int64_t q_head, o_head;  ///< stride from one query head to the next
  float scale;
  int64_t dq_head = 0;  ///< the same for dq; read by the backward
};

struct Kernels {
  GemmShape gemm;
  /// Packs B, `depth` × `columns`; either stride is 1.
  void (*pack_b)(const Matrix& b, int64_t depth, int64_t columns, float* packed);
  /// Computes rows [first, end) of the block.
  void (*gemm_rows)(const GemmBlock& block, int64_t first, int64_t end);
  /// sums[j] = Σ x[i · row + j] for j in [0, columns), in the order of i.
  void (*column_sums)(const float* x, int64_t rows, int64_t row, int64_t columns, float* sums);

  void (*gelu)(const float* x, float* y, int64_t count);
  /// dx = dy · gelu'(x).
  void (*gelu_backward)(const float* x, const float* dy, float* dx, int64_t count);

  /// −log softmax(logits)[target]; with a gradient, also (softmax − one-hot) · scale.
  float (*cross_entropy)(const float* logits, int64_t classes, int64_t target, float* gradient, float scale);

  /// Writes o, and into log_sums[use · seq + i] the logarithm of the sum of row i. Scratch sizes are in floats.
  int64_t (*attention_scratch)(const AttentionShape& shape);
  void (*attention)(const AttentionShape& shape, Heads q, Heads k, Heads v, Heads o, float* log_sums, float* scratch);
  int64_t (*attention_backward_scratch)(const AttentionShape& shape);
  /// Writes dq, dk and dv; d_o has the same strides between heads as o.
  void (*attention_backward)(const AttentionShape& shape, Heads q, Heads k, Heads v, Heads o, Heads d_o,
                             const float* log_sums, Heads dq, Heads dk, Heads dv, float* scratch);
};

/// Null if this machine cannot run them.
#if defined(__x86_64__)
const Kernels* avx2();
const Kernels* avx512();
#else
inline const Kernels* avx2() { return nullptr; }
inline const Kernels* avx512() { return nullptr; }
#endif
/// The fastest table that this machine can run, or null.
const Kernels* best();

}  // namespace trireme::model_kernels
