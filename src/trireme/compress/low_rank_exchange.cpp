// PowerSGD: sums of P = M Q, then of Q = Mᵀ P with P made orthonormal; the sum of all M is close to P Qᵀ.
//
// Q of one step is where the next begins. Vectors, and matrices that two factors would not make smaller, travel whole
// beside P. A rank keeps (I − P Pᵀ) of its own matrix for the next step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/philox.h"
#include "trireme/compress/arithmetic.h"
#include "trireme/compress/exchange_families.h"
#include "trireme/compress/kernels.h"
#include "trireme/compress/low_rank.h"

namespace trireme {
namespace {

using compress_kernels::Store;

class LowRankExchange : public ResidualExchange {
 public:
  LowRankExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout)
      : ResidualExchange(comm, options, std::move(layout)),
        kernels_(compress_kernels::fastest()),
        rank_(static_cast<size_t>(options.rank)) {
    size_t num_p = 0, num_q = 0;
    for (const TensorPart& part : layout_.parts) {
      if (is_worth_factoring(part.rows, part.columns, rank_)) {
        matrices_.push_back({part, num_p, num_q});
        num_p += part.rows * rank_;
        num_q += part.columns * rank_;
      } else {
        dense_.push_back(part);
        num_dense_ += part.count();
      }
    }
    p_.resize(num_p + num_dense_);
    q_.resize(num_q);
    for (const Matrix& matrix : matrices_) renew(matrix, 0, true);
  }

  void sum(std::span<float> values, uint64_t step) override {
    const std::span<float> from = residual_.with(values);
    for (const Matrix& m : matrices_) {
      kernels_.project(from.data() + m.part.offset, m.part.rows, m.part.columns, q_of(m), rank_, p_of(m));
    }
    float* dense = p_.data() + (p_.size() - num_dense_);
    for (const TensorPart& part : dense_) dense = std::copy_n(from.data() + part.offset, part.count(), dense);
    all_reduce(p_);

    for (const Matrix& m : matrices_) {
      make_orthonormal({p_of(m), m.part.rows * rank_}, m.part.rows, rank_);
      float* const matrix = from.data() + m.part.offset;
      kernels_.project_back(matrix, m.part.rows, m.part.columns, p_of(m), rank_, q_of(m));
      if (!residual_.kept()) continue;
      kernels_.expand(p_of(m), q_of(m), m.part.rows, m.part.columns, rank_, Store::kSubtract, matrix);
    }
    all_reduce(q_);

    for (const Matrix& m : matrices_) {
      kernels_.expand(p_of(m), q_of(m), m.part.rows, m.part.columns, rank_, Store::kSet, values.data() + m.part.offset);
      renew(m, step + 1, false);
    }
    const float* sums = p_.data() + (p_.size() - num_dense_);
    for (const TensorPart& part : dense_) {
      std::copy_n(sums, part.count(), values.data() + part.offset);
      sums += part.count();
      if (residual_.kept()) std::fill_n(from.data() + part.offset, part.count(), 0.f);
    }
    clear_not_finite(residual_.values());
  }

  void save(StatePieces& pieces) const override {
    ResidualExchange::save(pieces);
    for (const Matrix& m : matrices_) {
      const float* const q = q_.data() + m.q;
      pieces.push_back(
          {name_of_q(m), StateKind::kReplicated, 0, m.part.columns * rank_, {q, q + m.part.columns * rank_}});
    }
  }
  void load(std::span<const StatePieces> by_rank) override {
    ResidualExchange::load(by_rank);
    if (by_rank.empty()) return;
    for (const Matrix& m : matrices_) {
      for (const StatePiece& piece : by_rank[0]) {  // one with another rank is of no use: the fresh one stays
        const bool fits = piece.name == name_of_q(m) && piece.values.size() == m.part.columns * rank_;
        if (fits) std::copy(piece.values.begin(), piece.values.end(), q_of(m));
      }
    }
  }

 private:
  struct Matrix {
    TensorPart part;
    size_t p, q;  ///< where its factors begin
  };

  float* p_of(const Matrix& m) { return p_.data() + m.p; }
  float* q_of(const Matrix& m) { return q_.data() + m.q; }
  std::string name_of_q(const Matrix& m) const { return "q/" + m.part.name; }

  /// Makes the rows of Q ready for the next step: of length 1, so that P is as large as M, however small gradients get.
  /// Random ones take the place of all, or of those that lead nowhere: a 0 would stay 0 for ever. The same on all
  /// ranks.
  void renew(const Matrix& m, uint64_t step, bool all) {
    for (size_t k = 0; k < rank_; ++k) {
      const std::span<float> row(q_of(m) + k * m.part.columns, m.part.columns);
      const double square = dot_product(row, row);
      const bool usable = !all && square > 1e-70 && square < 1e70;
      if (!usable) {
        Philox(options_.seed, fmt::format("compress/q/{}", m.part.name), step).fill_normal(row, k * m.part.columns);
      }
      scale_by(row, static_cast<float>(1 / std::sqrt(usable ? square : dot_product(row, row))));
    }
  }

  const compress_kernels::Kernels& kernels_;
  size_t rank_;  ///< of the factors
  std::vector<Matrix> matrices_;
  std::vector<TensorPart> dense_;
  size_t num_dense_ = 0;
  std::vector<float> p_;  ///< of all matrices, then what travels whole
  std::vector<float> q_;
};

}  // namespace

std::unique_ptr<Exchange> make_low_rank_exchange(Communicator& comm, const CompressionOptions& options,
                                                 GroupLayout layout) {
  return std::make_unique<LowRankExchange>(comm, options, std::move(layout));
}

}  // namespace trireme
