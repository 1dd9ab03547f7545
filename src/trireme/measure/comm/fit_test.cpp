// A made-up transport whose constants the fit must find.
#include "trireme/measure/comm/fit.h"

#include <gtest/gtest.h>

#include <sstream>

namespace trireme::measure {
namespace {

/// Answers like ranks that work exactly by the formulas; `wrong` times too slow in all-reduces.
struct Imagined {
  TransportCost cost{"tcp", 2, {20, 3e-4}, 1e-4, 30, 2e-4};
  double wrong = 1;
  std::vector<std::string> asked = {};

  double operator()(const std::string& command, std::string* algorithm) {
    asked.push_back(command);
    std::istringstream words(command);
    std::string what, operation, name, buffers;
    double bytes = 0;
    words >> what;
    if (what == "barrier") return cost.barrier_us;
    if (what != "measure") words >> bytes;
    if (what == "exchange") return cost.link.latency_us + bytes * cost.link.us_per_byte;
    if (what == "combine") return bytes * cost.reduce_us_per_byte;
    if (what == "copy") return bytes * cost.copy_us_per_byte;
    words >> operation >> name >> buffers >> bytes;
    *algorithm = "ring";
    return wrong * predict_operation_us(Operation::kAllReduce, Algorithm::kRing, cost.ranks,
                                        static_cast<uint64_t>(bytes), cost);
  }
};

TEST(FitTransport, FindsWhatMadeTheTimes) {
  Imagined transport;
  const FittedTransport fitted = fit_transport(std::ref(transport), "tcp", 2);
  EXPECT_EQ(fitted.cost.transport, "tcp");
  EXPECT_EQ(fitted.cost.ranks, 2);
  EXPECT_NEAR(fitted.cost.link.latency_us, 20, 1e-6);
  EXPECT_NEAR(fitted.cost.link.us_per_byte, 3e-4, 1e-10);
  EXPECT_NEAR(fitted.cost.reduce_us_per_byte, 1e-4, 1e-10);
  EXPECT_NEAR(fitted.cost.copy_us_per_byte, 2e-4, 1e-10);
  EXPECT_EQ(fitted.cost.barrier_us, 30);
  EXPECT_NEAR(fitted.link_error, 0, 1e-9);
  EXPECT_NEAR(fitted.all_reduce_error, 0, 1e-9);
  ASSERT_EQ(fitted.all_reduce.size(), std::size(kCheckedSizes));
  EXPECT_EQ(fitted.all_reduce_predicted.size(), std::size(kCheckedSizes));
  EXPECT_NE(std::find(transport.asked.begin(), transport.asked.end(), "exchange 8388608 10"), transport.asked.end());
}

TEST(FitTransport, SaysHowFarTheFormulasAreOff) {
  Imagined transport{.wrong = 2};
  EXPECT_NEAR(fit_transport(std::ref(transport), "tcp", 2).all_reduce_error, 0.5, 1e-6);
}

}  // namespace
}  // namespace trireme::measure
