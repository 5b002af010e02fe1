// SPDX-License-Identifier: BSD-3-Clause
// parts.h - what the files of the process group share: checks in Gloo's words, and
// where results go. Private to reductions.cpp, moving.cpp and messages.cpp.
#pragma once

#include <climits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "group.h"

namespace tutti_torch
{

using c10d::OpType;

// Errors in Gloo's words, because programs look for them.
inline std::function<void(const std::string &)> complain(const char *what)
{
    return [what](const std::string &msg) {
        TORCH_CHECK(false, "ProcessGroupTutti::", what, ": ", msg);
    };
}

inline size_t count_of(const at::Tensor &t, const Elements &e)
{
    return static_cast<size_t>(t.numel()) * e.n;
}

// Where a result goes: the tensor itself, or a place from which it is copied.
struct Place {
    at::Tensor to;
    Step after;
};

inline Place place_for(const at::Tensor &t)
{
    if (t.is_contiguous())
        return {t, nullptr};
    auto apart = at::empty(t.sizes(), t.options());
    return {apart, [t, apart] { t.detach().copy_(apart); }};
}

// For what is read and written: the copy is filled.
inline Place filled_place_for(const at::Tensor &t)
{
    auto place = place_for(t);
    if (place.after)
        place.to.copy_(t.detach());
    return place;
}

// Copies `from` to each of the tensors.
inline Step copies_to(const Tensors &tensors, const at::Tensor &from)
{
    return [tensors, from] {
        for (const auto &t : tensors)
            if (!t.is_same(from))
                t.detach().copy_(from);
    };
}

inline void check_same_type(const char *what, const at::Tensor &a,
                            const at::Tensor &b)
{
    if (a.scalar_type() != b.scalar_type())
        complain(what)(
            c10::str("input and output tensors have different types (",
                     a.scalar_type(), " and ", b.scalar_type(), ")"));
}

inline void check_one(const char *what, const Tensors &tensors)
{
    c10d::assertSingleElement(complain(what), tensors);
    check_tensors(what, tensors);
}

} // namespace tutti_torch
