// SPDX-License-Identifier: BSD-3-Clause
// wayback.h - the way back to Python of a thread that has waited without the GIL.
//
// Python ends while its daemon threads go on. One of them that then asks for the GIL
// is ended where it is, by an unwinding through destructors that may not throw:
// std::terminate, and a program that was done aborts. That is what happens to a
// thread that waits in a collective, since its end is the group's end. So whoever
// comes back when Python ends stays here, and goes with the process.
//
// A thread that is past this point, but has not got the GIL yet, gets it while
// Python's atexit functions run: close() waits that long.
#pragma once

#include <Python.h>

namespace tutti_torch
{

// Its end is the way back; its maker has no GIL.
class WayBack
{
  public:
    WayBack() = default;
    WayBack(const WayBack &) = delete;
    WayBack &operator=(const WayBack &) = delete;
    ~WayBack();

    // By the thread that ends Python, without the GIL.
    static void close();
};

// In place of pybind11's: the GIL is given away, if this thread has it, and is had
// again at the end.
class WithoutGil
{
  public:
    WithoutGil() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr)
    {
    }
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;
    ~WithoutGil();

  private:
    PyThreadState *const state_;
};

} // namespace tutti_torch
