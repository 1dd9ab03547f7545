#include "trireme/comm/control/clock_offset.h"

#include <chrono>
#include <vector>

#include "trireme/base/deadline.h"

namespace trireme {
namespace {

constexpr int kRoundTrips = 8;
constexpr uint32_t kAskTag = 0xffff0010, kAnswerTag = 0xffff0011;

}  // namespace

double clock_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

double clock_offset(Communicator& comm) {
  double offset = 0, fastest = 0;
  std::vector<double> time(1);
  const auto data = [&] { return Data(time.data(), time.size(), DataType::kDouble); };
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (comm.rank() != 0 && comm.rank() != rank) continue;
    for (int i = 0; i < kRoundTrips; ++i) {
      if (comm.rank() == 0) {
        comm.recv(data(), rank, kAskTag);
        time[0] = clock_seconds();
        comm.send(data(), rank, kAnswerTag);
        continue;
      }
      const double asked = clock_seconds();
      comm.send(data(), 0, kAskTag);
      comm.recv(data(), 0, kAnswerTag);
      const double answered = clock_seconds();
      if (i > 0 && answered - asked >= fastest) continue;
      fastest = answered - asked;
      offset = time[0] - (asked + answered) / 2;
    }
  }
  return offset;
}

}  // namespace trireme
