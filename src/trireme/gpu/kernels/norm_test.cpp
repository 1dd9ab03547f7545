// Norms on the GPU against references in double precision, over odd shapes, all types and alignments.
#include "trireme/gpu/kernels/norm.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/gpu/gpu_test_util.h"

namespace trireme::gpu {
namespace {

struct Case {
  int64_t rows, width;
  Type type;
  bool centred;  ///< layer norm, else RMS norm
  bool with_residual;
  size_t shift_elements = 0;  ///< of all matrices from an aligned address
  std::string name() const {
    return std::string(centred ? "layer norm " : "RMS norm ") + std::to_string(rows) + " x " + std::to_string(width) +
           " " + name_of(type) + (with_residual ? " with residual" : "") +
           (shift_elements ? " shifted by " + std::to_string(shift_elements) : "");
  }
};

struct Reference {
  std::vector<double> y, mean, rstd, dx, d_scale, d_shift, d_scale_size, d_shift_size;
};

constexpr double kEps = 1e-5f;

struct Operands {
  std::vector<float> x, dy, residual, scale, shift;
};

Reference reference(const Case& c, const Operands& in) {
  const auto rows = static_cast<size_t>(c.rows), width = static_cast<size_t>(c.width);
  const auto n = static_cast<double>(width);
  Reference r;
  r.y.resize(rows * width), r.dx.resize(rows * width), r.mean.resize(rows), r.rstd.resize(rows);
  r.d_scale.resize(width), r.d_shift.resize(width), r.d_scale_size.resize(width), r.d_shift_size.resize(width);
  for (size_t i = 0; i < rows; ++i) {
    const float *x = &in.x[i * width], *dy = &in.dy[i * width];
    double mean = 0, squares = 0;
    for (size_t j = 0; c.centred && j < width; ++j) mean += x[j] / n;
    for (size_t j = 0; j < width; ++j) squares += (x[j] - mean) * (x[j] - mean) / n;
    const double rstd = 1 / std::sqrt(squares + kEps);
    r.mean[i] = mean, r.rstd[i] = rstd;
    double constant = 0, slope = 0;
    for (size_t j = 0; j < width; ++j) {
      const double normal = (x[j] - mean) * rstd;
      r.y[i * width + j] = normal * in.scale[j] + (c.centred ? in.shift[j] : 0);
      if (c.centred) constant += dy[j] * double{in.scale[j]} / n;
      slope += dy[j] * in.scale[j] * normal / n;
      r.d_scale[j] += dy[j] * normal, r.d_scale_size[j] += std::abs(dy[j] * normal);
      r.d_shift[j] += dy[j], r.d_shift_size[j] += std::abs(dy[j]);
    }
    for (size_t j = 0; j < width; ++j) {
      const double normal = (x[j] - mean) * rstd;
      r.dx[i * width + j] = (dy[j] * double{in.scale[j]} - constant - normal * slope) * rstd +
                            (c.with_residual ? in.residual[i * width + j] : 0);
    }
  }
  return r;
}

class NormTest : public GpuTest {
 protected:
  void run(const Case& c) {
    SCOPED_TRACE(c.name());
    const int64_t count = c.rows * c.width;
    const auto seed = static_cast<uint32_t>(count * 7 + c.width);
    Operands in{random_values(count, c.type, seed, 2, 0.5f), random_values(count, c.type, seed + 1),
                random_values(count, c.type, seed + 2), random_values(c.width, Type::kFloat, seed + 3, 0.5f, 1),
                random_values(c.width, Type::kFloat, seed + 4)};
    const Reference expected = reference(c, in);
    const NormShape shape{c.rows, c.width, c.type};
    const size_t bytes = static_cast<size_t>(count) * size_of(c.type), shift = c.shift_elements * size_of(c.type);
    const auto rows = static_cast<size_t>(c.rows), width = static_cast<size_t>(c.width);
    const DeviceMemory x = to_device(in.x, c.type, shift), dy = to_device(in.dy, c.type, shift),
                       residual = to_device(in.residual, c.type, shift), scale = to_device(in.scale),
                       shifts = to_device(in.shift), y(bytes, shift), dx(bytes, shift), mean(rows * 4), rstd(rows * 4),
                       d_scale(width * 4), d_shift(width * 4), scratch(norm_backward_scratch(shape));
    const void* past = c.with_residual ? residual.get() : nullptr;
    if (c.centred) {
      layer_norm(shape, x.get(), scale.get<float>(), shifts.get<float>(), kEps, y.get(), mean.get<float>(),
                 rstd.get<float>(), stream_);
      layer_norm_backward(shape, dy.get(), x.get(), scale.get<float>(), mean.get<float>(), rstd.get<float>(), past,
                          dx.get(), d_scale.get<float>(), d_shift.get<float>(), scratch.get(), stream_);
    } else {
      rms_norm(shape, x.get(), scale.get<float>(), kEps, y.get(), rstd.get<float>(), stream_);
      rms_norm_backward(shape, dy.get(), x.get(), scale.get<float>(), rstd.get<float>(), past, dx.get(),
                        d_scale.get<float>(), scratch.get(), stream_);
    }
    wait();
    // Rounding of the result, and of the float32 arithmetic before it on values of a few units. In very short rows the
    // variance may be next to none: then 1/√eps multiplies every error.
    const double rounding = rounding_of(c.type), gain = c.width < 4 ? 320 : 1;
    expect_close(to_host(y, c.type), expected.y, 1.01 * rounding, 4e-6 * gain, "y");
    expect_close(to_host<float>(rstd), expected.rstd, 2e-6, 0, "rstd");
    if (c.centred) expect_close(to_host<float>(mean), expected.mean, 1e-6, 2e-6, "mean");
    expect_close(to_host(dx, c.type), expected.dx, 1.01 * rounding, 8e-6 * gain, "dx");
    expect_sums(to_host<float>(d_scale), expected.d_scale, expected.d_scale_size, 1e-5 * gain, "d_scale");
    if (c.centred) expect_sums(to_host<float>(d_shift), expected.d_shift, expected.d_shift_size, 1e-5, "d_shift");
  }

  /// Errors of a sum grow with the sizes of what is summed, not with the sum.
  void expect_sums(const std::vector<float>& actual, const std::vector<double>& expected,
                   const std::vector<double>& sizes, double absolute, const char* what) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t j = 0; j < actual.size(); ++j) {
      ASSERT_NEAR(actual[j], expected[j], 2e-6 * sizes[j] + absolute) << what << " of column " << j;
    }
  }
};

TEST_F(NormTest, EveryTeamOfEveryType) {
  for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    for (const int64_t width : {8, 256, 504, 768, 1024, 2048, 2056, 6144, 8192, 12288, 16384}) {
      for (const bool centred : {true, false}) run({7, width, type, centred, width % 3 == 0});
    }
  }
}

TEST_F(NormTest, OddWidths) {
  for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    for (const int64_t width : {1, 2, 3, 31, 33, 257, 513, 767, 1025, 2049, 4097, 9001, 16383}) {
      for (const bool centred : {true, false}) run({5, width, type, centred, width % 2 == 0});
    }
  }
}

TEST_F(NormTest, ShiftedAddresses) {
  for (const Type type : {Type::kFloat, Type::kBFloat16}) run({9, 768, type, true, true, 1});
}

TEST_F(NormTest, ManyRows) {
  run({4999, 768, Type::kBFloat16, true, true});
  run({4999, 96, Type::kHalf, false, false});
  run({2999, 1024, Type::kBFloat16, false, true});
  run({1, 768, Type::kFloat, true, true});
}

TEST_F(NormTest, GradientsHaveTheSameBitsAgain) {
  const NormShape shape{3001, 768, Type::kBFloat16};
  const int64_t count = shape.rows * shape.width;
  const DeviceMemory x = to_device(random_values(count, shape.type, 1), shape.type),
                     dy = to_device(random_values(count, shape.type, 2), shape.type),
                     scale = to_device(random_values(shape.width, Type::kFloat, 3)),
                     rstd = to_device(random_values(shape.rows, Type::kFloat, 4, 0.1f, 1)),
                     mean = to_device(random_values(shape.rows, Type::kFloat, 5));
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 2; ++i) {
    const DeviceMemory dx(static_cast<size_t>(count) * 2), d_scale(768 * 4), d_shift(768 * 4),
        scratch(norm_backward_scratch(shape));
    layer_norm_backward(shape, dy.get(), x.get(), scale.get<float>(), mean.get<float>(), rstd.get<float>(), nullptr,
                        dx.get(), d_scale.get<float>(), d_shift.get<float>(), scratch.get(), stream_);
    wait();
    seen.push_back(to_host<float>(d_scale));
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST_F(NormTest, NoRowsGiveNoGradient) {
  const NormShape shape{0, 100, Type::kFloat};
  const DeviceMemory d_scale(400), d_shift(400), scratch(norm_backward_scratch(shape)), empty(0);
  layer_norm(shape, empty.get(), nullptr, nullptr, kEps, empty.get(), nullptr, nullptr, stream_);
  const DeviceMemory scale = to_device(random_values(100, Type::kFloat, 1));
  layer_norm_backward(shape, empty.get(), empty.get(), scale.get<float>(), nullptr, nullptr, nullptr, empty.get(),
                      d_scale.get<float>(), d_shift.get<float>(), scratch.get(), stream_);
  wait();
  EXPECT_EQ(to_host<float>(d_scale), std::vector<float>(100, 0));
  EXPECT_EQ(to_host<float>(d_shift), std::vector<float>(100, 0));
}

TEST_F(NormTest, RowsTooWideAreRefused) {
  const NormShape shape{1, 16385, Type::kFloat};
  EXPECT_THROW(norm_backward_scratch(shape), UsageError);
}

}  // namespace
}  // namespace trireme::gpu
