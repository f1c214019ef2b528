// The kinds of launches of a recurrence that has one or two launches for each step.
#pragma once

constexpr int kStart = 0;
// Follows the products of the update and reset gates, if the reset gate comes before the candidate's product.
constexpr int kHalf = 1;
constexpr int kFinish = 2;
