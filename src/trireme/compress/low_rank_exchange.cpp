// PowerSGD: sums of P = M Q, then of Q = Mᵀ P with P made orthonormal; the sum of all M is close to P Qᵀ.
//
// Q of one step is where the next begins. Vectors, and matrices that two factors would not make smaller, travel whole
// beside P. A rank keeps (I − P Pᵀ) of its own matrix for the next step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/philox.h"
#include "trireme/compress/exchange_families.h"
#include "trireme/compress/formats/arithmetic.h"
#include "trireme/compress/formats/low_rank.h"

namespace trireme {
namespace {

class LowRankExchange : public ResidualExchange {
 public:
  LowRankExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, Processor& processor)
      : ResidualExchange(comm, options, std::move(layout), processor),
        shape_{.rank = static_cast<size_t>(options.rank)},
        num_dense_(choose_matrices()),
        p_(host_shared_array(shape_.num_p + num_dense_)),
        q_(host_shared_array(shape_.num_q)) {
    std::vector<float> begin(shape_.num_q);
    for (size_t row = 0; row < shape_.num_rows_of_q(); ++row) fill_at_random(row, 0, row_of(begin, row));
    processor_.from_host(begin, q_.span());
    renew(0);
  }

  void sum(std::span<float> values, uint64_t step) override {
    const std::span<float> from = residual_.with(values), p = p_.span(), q = q_.span();
    const std::span<float> dense = p.subspan(shape_.num_p);
    processor_.project(shape_, from, q, p);
    for_each_dense([&](const TensorPart& part, size_t at) {
      processor_.copy(from.subspan(part.offset, part.count()), dense.subspan(at, part.count()));
    });
    all_reduce(p);

    processor_.make_orthonormal(shape_, p);
    processor_.project_back(shape_, from, p, q);
    if (residual_.kept()) processor_.expand(shape_, p, q, /*subtract=*/true, from);
    all_reduce(q);

    processor_.expand(shape_, p, q, /*subtract=*/false, values);
    for_each_dense([&](const TensorPart& part, size_t at) {
      processor_.copy(dense.subspan(at, part.count()), values.subspan(part.offset, part.count()));
      if (residual_.kept()) processor_.clear(from.subspan(part.offset, part.count()));
    });
    processor_.clear_not_finite(residual_.values());
    renew(step + 1);
  }

  void save(StatePieces& pieces) const override {
    ResidualExchange::save(pieces);
    std::vector<float> q(shape_.num_q);
    processor_.to_host(q_.span(), q);
    for (size_t i = 0; i < factored_.size(); ++i) {
      const auto begin = q.begin() + static_cast<std::ptrdiff_t>(shape_.matrices[i].q);
      const size_t count = count_of_q(i);
      pieces.push_back(
          {name_of_q(i), StateKind::kReplicated, 0, count, {begin, begin + static_cast<ptrdiff_t>(count)}});
    }
  }
  void load(std::span<const StatePieces> by_rank) override {
    ResidualExchange::load(by_rank);
    if (by_rank.empty()) return;
    for (size_t i = 0; i < factored_.size(); ++i) {
      for (const StatePiece& piece : by_rank[0]) {  // one with another rank is of no use: the fresh one stays
        if (piece.name != name_of_q(i) || piece.values.size() != count_of_q(i)) continue;
        processor_.from_host(piece.values, q_.span().subspan(shape_.matrices[i].q, count_of_q(i)));
      }
    }
  }

 private:
  /// Returns the elements of what travels whole.
  size_t choose_matrices() {
    size_t num_dense = 0;
    for (const TensorPart& part : layout_.parts) {
      if (is_worth_factoring(part.rows, part.columns, shape_.rank)) {
        shape_.add(part.offset, part.rows, part.columns);
        factored_.push_back(part.name);
      } else {
        dense_.push_back(part);
        num_dense += part.count();
      }
    }
    return num_dense;
  }
  /// With where each begins among them.
  template <typename Function>
  void for_each_dense(Function function) const {
    size_t at = 0;
    for (const TensorPart& part : dense_) {
      function(part, at);
      at += part.count();
    }
  }

  std::string name_of_q(size_t matrix) const { return "q/" + factored_[matrix]; }
  size_t count_of_q(size_t matrix) const { return shape_.matrices[matrix].columns * shape_.rank; }
  /// Rows of all Q are counted through.
  std::span<float> row_of(std::span<float> q, size_t row) const {
    const LowRank::Matrix& m = shape_.matrices[row / shape_.rank];
    return q.subspan(m.q + row % shape_.rank * m.columns, m.columns);
  }
  void fill_at_random(size_t row, uint64_t step, std::span<float> out) const {
    Philox(options_.seed, fmt::format("compress/q/{}", factored_[row / shape_.rank]), step)
        .fill_normal(out, row % shape_.rank * out.size());
  }

  /// Makes the rows of Q ready for the next step: of length 1, so that P is as large as M, however small gradients get.
  /// Random ones take the place of those that lead nowhere: a 0 would stay 0 for ever. The same on all ranks.
  void renew(uint64_t step) {
    const std::vector<double> squares = processor_.row_squares(shape_, q_.span());
    std::vector<float> factors(squares.size());
    for (size_t row = 0; row < squares.size(); ++row) {
      double square = squares[row];
      if (!(square > 1e-70 && square < 1e70)) {
        const std::span<float> there = row_of(q_.span(), row);
        std::vector<float> fresh(there.size());
        fill_at_random(row, step, fresh);
        processor_.from_host(fresh, there);
        square = dot_product(fresh, fresh);
      }
      factors[row] = static_cast<float>(1 / std::sqrt(square));
    }
    processor_.scale_rows(shape_, factors, q_.span());
  }

  LowRank shape_;
  std::vector<std::string> factored_;  ///< names of the matrices
  std::vector<TensorPart> dense_;      ///< what travels whole
  size_t num_dense_;
  Array<float> p_;  ///< of all matrices, then what travels whole
  Array<float> q_;
};

}  // namespace

std::unique_ptr<Exchange> make_low_rank_exchange(Communicator& comm, const CompressionOptions& options,
                                                 GroupLayout layout, Processor& processor) {
  return std::make_unique<LowRankExchange>(comm, options, std::move(layout), processor);
}

}  // namespace trireme
