// SPDX-License-Identifier: BSD-3-Clause
// wayback.cpp - see wayback.h. Next: group.cpp, work.cpp, partial.cpp, which use it.
#include "wayback.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace tutti_torch
{

namespace
{

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::atomic<Clock::rep> last{0}; // when somebody last went by
std::atomic<bool> is_closed{false};
std::thread::id closer; // set before is_closed

bool python_ends()
{
#if PY_VERSION_HEX >= 0x030d0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

// Others' atexit functions may wait for this thread: it may go on after a while.
void linger()
{
    const auto until = Clock::now() + std::chrono::seconds(1);
    while (python_ends() || Clock::now() < until)
        std::this_thread::sleep_for(milliseconds(5));
}

} // namespace

WayBack::~WayBack()
{
    // In this order: either it sees that the way is closed, or close() sees it.
    last = Clock::now().time_since_epoch().count();
    if (is_closed && closer != std::this_thread::get_id())
        linger();
}

void WayBack::close()
{
    const auto begin = Clock::now();
    closer = std::this_thread::get_id();
    is_closed = true;
    for (auto now = begin; now - begin < milliseconds(200);
         now = Clock::now()) {
        if (now.time_since_epoch() - Clock::duration(last.load()) >=
            milliseconds(20))
            return;
        std::this_thread::sleep_for(milliseconds(1));
    }
}

WithoutGil::~WithoutGil()
{
    if (!state_)
        return;
    {
        const WayBack back;
    }
    PyEval_RestoreThread(state_);
}

} // namespace tutti_torch
