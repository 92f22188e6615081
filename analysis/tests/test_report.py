# SPDX-License-Identifier: MIT
"""The report of a file as HTML, and its profile as a trace."""

import html.parser
import json
import unittest
from unittest import mock

import h5py
import numpy as np
import xarray as xr

from kformer_results import ResultFileError, open_results, report, schema, trace
from tests import stored, synthetic, synthetic_attention
from tests.test_results import WithFile, WithMain


class Page(html.parser.HTMLParser):
    """Collects headings, cells and where pictures come from; complains of tags that do not match."""

    OPEN = {"meta", "img"}

    def __init__(self, text):
        super().__init__()
        self.stack, self.sources, self.texts, self.links = [], [], {}, 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.sources.append(dict(attributes)["src"])
        self.links += tag in ("script", "link", "iframe", "a")
        if tag not in self.OPEN:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag

    def handle_data(self, data):
        if self.stack and data.strip():
            self.texts.setdefault(self.stack[-1], []).append(data)


class Report(WithFile, WithMain):
    def page(self, path):
        page = Page(report.report(open_results(path)))
        self.assertEqual(page.stack, [])
        self.assertEqual(page.links, 0)
        return page

    def test_every_kind_has_results_pictures_and_origin(self):
        for kind in schema.kinds(stored.NEWEST):
            with self.subTest(kind=kind):
                page = self.page(stored.unpack(self.folder, kind))
                wanted = ["Results", "Pictures", "Machine", "Origin", "Deck"]
                if kind in ("memory_plan", "quantize", "scaling"):
                    wanted.remove("Machine")
                if kind == "quantize":
                    wanted.remove("Deck")
                self.assertEqual(page.texts["h2"], wanted)
                self.assertTrue(page.sources)
                for source in page.sources:
                    self.assertTrue(source.startswith("data:image/png;base64,"))

    def test_every_configuration_and_batch_has_a_picture(self):
        synthetic_attention.write(self.folder / "attention.h5")
        page = self.page(self.folder / "attention.h5")
        self.assertEqual((page.texts["h3"], len(set(page.sources))), (["causal yes", "causal no"], 2))
        path = self.written(regions=False)
        with h5py.File(path, "r+") as file:
            file["cases/batch"][4:8] = 4
            file["cases/batch"][8:] = 16
        page = self.page(path)
        self.assertEqual((page.texts["h3"], len(set(page.sources))), (["batch 1", "batch 4", "batch 16"], 3))
        with mock.patch.object(report, "_MOST_PICTURES", 2):
            page = self.page(path)
        self.assertEqual((page.texts["h3"], len(set(page.sources))), (["batch 1", "batch 4"], 2))
        self.assertTrue(any(text.startswith("The first 2 of 3.") for text in page.texts["p"]))

    def test_the_model_is_named(self):
        self.assertIn("model tiny-llama", self.page(stored.unpack(self.folder, "generate")).texts["p"][0])

    def test_texts_are_no_markup(self):
        path = self.written()
        with h5py.File(path, "r+") as file:
            file.attrs["title"] = "<script>alert(1)</script>"
            file["cases/impl"][0] = "<b>flash</b>"
            del file["provenance/deck_text"]
            file["provenance/deck_text"] = "# </pre><img src=x>"
        page = self.page(path)
        self.assertEqual(page.texts["h1"], ["<script>alert(1)</script>"])
        self.assertIn("<b>flash</b>", page.texts["td"])
        self.assertEqual(page.texts["pre"], ["# </pre><img src=x>"])
        self.assertEqual(len(page.sources), 1)

    def test_a_run_without_cases_has_a_sentence(self):
        page = self.page(self.written(cases=0, complete=0))
        self.assertEqual(page.texts["h2"], ["Results", "Origin", "Deck"])
        self.assertIn("the file has no cases", page.texts["p"][1])

    def test_the_command_writes_beside_the_file(self):
        code, out, _ = self.run_main("report", self.written())
        self.assertEqual((code, out.strip()), (0, str(self.folder / "layer.html")))
        self.assertIn("Llama-3.2-1B decoder layer", (self.folder / "layer.html").read_text())


class Trace(WithFile, WithMain):
    def slices(self, case=0, **options):
        groups = open_results(self.written(**options))
        found = trace.trace_of(groups, [case])
        return [event for event in found["traceEvents"] if event["ph"] == "X"]

    def test_slices_are_as_long_as_their_regions_and_lie_inside_of_their_parents(self):
        slices = {event["args"]["path"]: event for event in self.slices(case=1)}
        whole = 2e6 * synthetic.seconds("standard", "f32", "forward", 1024)
        self.assertAlmostEqual(slices["forward"]["dur"], whole)
        self.assertAlmostEqual(slices["forward/attention"]["dur"], 0.3 * whole)
        for path, event in slices.items():
            if "/" in path:
                parent = slices[path.rsplit("/", 1)[0]]
                self.assertGreaterEqual(event["ts"], parent["ts"] - 1e-9)
                self.assertLessEqual(event["ts"] + event["dur"], parent["ts"] + parent["dur"] * (1 + 1e-9))
        ordered = [slices[f"forward/{block}"] for block in synthetic.BLOCKS]
        for before, after in zip(ordered, ordered[1:]):
            self.assertAlmostEqual(after["ts"], before["ts"] + before["dur"])

    def test_kernels_follow_the_regions_inside_of_theirs(self):
        groups = open_results(stored.unpack(self.folder, "layer_sweep"))
        events = trace.trace_of(groups)["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel"]
        regions = {(event["pid"], event["args"]["path"]): event for event in events if event.get("cat") == "region"}
        self.assertEqual(len(kernels), groups["kernels"].sizes["kernel"])
        for kernel in kernels:
            around = kernel["pid"], kernel["args"]["region"]
            begins = [regions[around]["ts"]]
            begins += [region["ts"] + region["dur"] for (pid, path), region in regions.items()
                       if (pid, path.rpartition("/")[0]) == around]  # fmt: skip
            self.assertGreaterEqual(kernel["ts"], max(begins) - 1e-3)
            end = regions[around]["ts"] + regions[around]["dur"]
            self.assertLessEqual(kernel["ts"] + kernel["dur"], end + 1e-3)
        total = sum(event["dur"] for event in kernels)
        self.assertAlmostEqual(total / 1e6, float(groups["kernels"]["time_total"].sum()), delta=0.05 * total / 1e6)

    def test_a_training_has_its_memory(self):
        groups = open_results(stored.unpack(self.folder, "train"))
        counters = [event for event in trace.trace_of(groups)["traceEvents"] if event["ph"] == "C"]
        self.assertEqual(len(counters), groups["memory/bookings"].sizes["change"])
        booked = groups["memory/bookings"]
        self.assertEqual(list(counters[-1]["args"].values()), np.asarray(booked["bytes"])[-1].tolist())
        self.assertAlmostEqual(counters[-1]["ts"], float(booked["time"][-1]) * 1e6)

    def test_a_timeline_has_the_moments_of_each_rank(self):
        groups = open_results(stored.unpack(self.folder, "train"))
        rows = [(0, "region", "backward", 0.5, 2.0), (0, "for", "dx", 0.75, 1.0), (1, "section", "reduce_shards", 0.25, 3.0)]
        names = ("rank", "kind", "name", "begin", "duration")
        moments = xr.Dataset({name: ("moment", np.array([row[i] for row in rows])) for i, name in enumerate(names)})
        with_moments = dict(groups) | {"timeline": moments}
        events = [event for event in trace.trace_of(with_moments)["traceEvents"] if event["pid"] >= 2_000_000]
        self.assertEqual([event["args"]["name"] for event in events if event["ph"] == "M"],
                         ["rank 0, at its times", "rank 1, at its times"])  # fmt: skip
        slices = [(event["pid"], event["name"], event["cat"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
        self.assertEqual(slices, [(2_000_000, "backward", "region", 5e5, 2e6), (2_000_000, "dx", "kernel", 7.5e5, 1e6)])
        section = [(event["pid"], event["ph"], event["name"], event["ts"]) for event in events if "id" in event]
        self.assertEqual(section, [(2_000_001, "b", "reduce_shards", 2.5e5), (2_000_001, "e", "reduce_shards", 3.25e6)])

    def test_a_run_without_a_profile_is_refused(self):
        with self.assertRaisesRegex(ResultFileError, "no case was profiled"):
            self.slices(regions=False)
        with self.assertRaisesRegex(ResultFileError, "case 99 was not profiled; these were: 0, 1, 2, 3$"):
            self.slices(case=99, cases=4)

    def test_the_command_writes_json(self):
        code, out, _ = self.run_main("trace", self.written(), "--case", 2, "--case", 3)
        self.assertEqual((code, out.strip()), (0, str(self.folder / "layer.trace.json")))
        found = json.loads((self.folder / "layer.trace.json").read_text())
        self.assertEqual({event["pid"] for event in found["traceEvents"]}, {2, 3})
        names = [event["args"]["name"] for event in found["traceEvents"] if event["ph"] == "M"]
        self.assertEqual(names[0], "case 2: layer standard f32 forward batch 1 seq_len 2048")


if __name__ == "__main__":
    unittest.main()
