// SPDX-License-Identifier: BSD-3-Clause
// parts.h - what the files of the process group share: checks in Gloo's words, and
// where results go. Private to reductions.cpp, moving.cpp and messages.cpp.
#pragma once

#include <climits>

#include <ATen/MemoryOverlap.h>
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
    at::assert_no_internal_overlap(t); // before anything is sent
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

inline void check_same_length(const char *what, size_t n_outputs,
                              size_t n_inputs)
{
    if (n_outputs != n_inputs)
        complain(what)(
            "requires input/output tensor lists to have the same length");
}

// A list for each of the ranks, of one tensor per input.
inline void check_columns(const char *what, const std::vector<Tensors> &lists,
                          size_t n_inputs, int size)
{
    if (lists.size() != static_cast<size_t>(size))
        complain(what)("output lists should be equal to world size");
    for (const auto &list : lists)
        if (list.size() != n_inputs)
            complain(what)(c10::str("invalid output size: (expected length ",
                                    n_inputs, ", got ", list.size(), ")"));
}

// What the root of a gather or scatter gives: one list, a tensor per rank.
inline void check_row(const char *what, const char *which,
                      const std::vector<Tensors> &lists, int size)
{
    if (lists.size() != 1)
        complain(what)(c10::str("requires a single-element ", which,
                                " list containing a list with ", size,
                                " tensors."));
    if (lists[0].size() != static_cast<size_t>(size))
        complain(what)(c10::str("Incorrect ", which, " list size ",
                                lists[0].size(), ". It should be ", size,
                                ", same as size of the process group."));
}

// And the others.
inline void check_empty(const char *what, const char *which,
                        const std::vector<Tensors> &lists)
{
    if (!lists.empty())
        complain(what)(c10::str("requires empty ", which, " on non-root"));
}

inline void check_world_size(const char *what, const char *which, size_t n,
                             int size)
{
    if (n != static_cast<size_t>(size))
        complain(what)(c10::str(which, " tensor list size ", n,
                                " does not match world size ", size));
}

} // namespace tutti_torch
