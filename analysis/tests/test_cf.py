# SPDX-License-Identifier: MIT
"""What the CF conventions (https://cfconventions.org, version 1.10) ask of a file, held against a file of each kind."""

import re
import unittest

import h5py
import numpy as np

from kformer_results import schema
from kformer_results.groups import OWN_ATTRIBUTES, dims_of
from tests import stored
from tests.test_results import WithFile

# Section 2.3: letters, digits and underscores, a letter first.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*$")
# Section 3.5: words of a flag.
MEANING = re.compile(r"[A-Za-z0-9_.+@-]+$")
# Section 3.1: what UDUNITS knows. The base of each unit that the files use.
UNITS = re.compile(r"(1|s|byte)(/s)?$")
# Section 2.6.
GLOBAL = ("Conventions", "title", "history", "source", "references")


class Conventions(WithFile):
    def each(self):
        """The groups of a file of each kind, the root first."""
        for kind in schema.kinds(stored.NEWEST):
            with h5py.File(stored.unpack(self.folder, kind), "r") as file:
                groups = [file]
                file.visititems(lambda _, item: groups.append(item) if isinstance(item, h5py.Group) else None)
                yield groups

    def datasets(self):
        for groups in self.each():
            for group in groups:
                yield from (item for item in group.values() if isinstance(item, h5py.Dataset))

    def test_a_file_says_where_it_is_from(self):
        for groups in self.each():
            root = groups[0].attrs
            for name in GLOBAL:
                self.assertIsInstance(root[name], str, name)
                self.assertTrue(root[name], name)
            version = root["schema_version"]
            self.assertRegex(root["Conventions"], rf"^CF-1\.\d+ kformer-{re.escape(version)}$")
            # A line for each program, with its time first.
            self.assertRegex(root["history"], rf"^{re.escape(root['date'])} kformer-")
            self.assertIn(root["softwareVersion"], root["source"])

    def test_names(self):
        for groups in self.each():
            for group in groups:
                for name in [*group, *group.attrs]:
                    self.assertRegex(name, NAME, group.name)

    def test_numbers_have_units_and_everything_a_description(self):
        for dataset in self.datasets():
            self.assertTrue(dataset.attrs["long_name"], dataset.name)
            if h5py.check_string_dtype(dataset.dtype) is None:
                self.assertRegex(dataset.attrs["units"], UNITS, dataset.name)

    def test_flags_have_values_of_their_type_and_words(self):
        found = 0
        for dataset in self.datasets():
            if "flag_values" not in dataset.attrs:
                continue
            found += 1
            values, words = dataset.attrs["flag_values"], dataset.attrs["flag_meanings"].split(" ")
            self.assertEqual(values.dtype, dataset.dtype, dataset.name)
            self.assertEqual(len(set(values.tolist())), len(words), dataset.name)
            for word in words:
                self.assertRegex(word, MEANING, dataset.name)
        self.assertGreater(found, 10)

    def test_fill_values_have_the_type_of_their_data(self):
        for dataset in self.datasets():
            if "_FillValue" in dataset.attrs:
                self.assertEqual(np.asarray(dataset.attrs["_FillValue"]).dtype, dataset.dtype, dataset.name)

    def test_coordinates_ascend_without_gaps(self):
        """Section 4: numbers along an axis have no missing values and one direction."""
        found = 0
        for dataset in self.datasets():
            if dims_of(dataset) != (dataset.name.split("/")[-1],) or dataset.dtype.kind not in "iuf":
                continue
            found += 1
            self.assertNotIn("_FillValue", dataset.attrs, dataset.name)
            self.assertTrue((np.diff(dataset[()]) > 0).all(), dataset.name)
        self.assertGreater(found, 10)

    def test_other_attributes_of_data_are_none(self):
        known = {"units", "long_name", "_FillValue", "flag_values", "flag_meanings"} | OWN_ATTRIBUTES
        for dataset in self.datasets():
            self.assertLessEqual(set(dataset.attrs), known, dataset.name)


if __name__ == "__main__":
    unittest.main()
