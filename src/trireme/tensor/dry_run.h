// For benchmarks: redistributions without their collectives, to see what computation takes alone.
#pragma once

namespace trireme {

/// From now on redistributions of this process prepare and arrange what moves, but nothing moves: speeds are right,
/// numbers are not. All ranks switch together. Also for sums inside operators.
void leave_out_collectives(bool on);

}  // namespace trireme
