"""Answers as tools and services write them: each format as a function of the same answers."""

import csv
import io
import json

UUID = "ddf59264-185a-4d35-b647-2785792bdf54"


def own(answers):
    """Our JSON lines, against which the others are held."""
    return "\n".join(
        json.dumps({"image": image, "topk_labels": [n for n, _ in pairs], "topk_scores": [s for _, s in pairs]})
        for image, pairs in answers
    )


def speciesnet(answers):
    """What `run_model` writes; where its classifier failed, there are no classifications."""
    predictions = []
    for image, pairs in answers:
        item = {"filepath": image, "country": "KEN", "prediction": f"{UUID};;;;;;blank", "prediction_score": 0.9}
        if pairs:
            item["classifications"] = {"classes": [name for name, _ in pairs], "scores": [score for _, score in pairs]}
        else:
            item["failures"] = ["CLASSIFIER"]
        item["detections"] = [{"category": "1", "label": "animal", "conf": 0.91, "bbox": [0.1, 0.2, 0.3, 0.4]}]
        predictions.append({**item, "model_version": "4.0.1a"})
    return json.dumps({"predictions": predictions}, indent=1)


def megadetector(answers, *, images_first=False):
    """Detections with classifications; the surest one is not the first."""
    names = sorted({name for _, pairs in answers for name, _ in pairs})
    numbers = {name: str(number) for number, name in enumerate(names)}
    images = []
    for image, pairs in answers:
        unsure = {"category": "2", "conf": 0.06, "bbox": [0, 0, 1, 1]}
        sure = {"category": "1", "conf": 0.926, "bbox": [0, 0, 1, 1]}
        sure["classifications"] = [[numbers[name], score] for name, score in pairs]
        images.append({"file": image, "detections": [unsure, sure] if pairs else []})
    content = {
        "info": {"format_version": "1.6", "detector_metadata": {"typical_detection_threshold": 0.2}},
        "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
        "classification_categories": {number: name for name, number in numbers.items()},
    }
    return json.dumps({"images": images, **content} if images_first else {**content, "images": images})


def _table(delimiter, header, rows):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _window(image):
    recording, _, times = image.rpartition("#")
    return recording, *times.split("-")


def birdnet_csv(answers):
    """`*.BirdNET.results.csv`; a window in which nothing was heard has no row."""
    header = ["Start (s)", "End (s)", "Scientific name", "Common name", "Confidence", "File"]
    rows = []
    for image, pairs in answers:
        recording, begin, end = _window(image)
        rows += [[f"{begin}.0", f"{end}.0", "Aves", name, score, recording] for name, score in pairs]
    return _table(",", header, rows)


def birdnet_raven(answers):
    """`*.BirdNET.selection.table.txt`, with tabs."""
    header = "Selection,View,Channel,Begin Time (s),End Time (s),Low Freq (Hz),High Freq (Hz),Common Name,Species Code,"
    rows = []
    for image, pairs in answers:
        recording, begin, end = _window(image)
        for name, score in pairs or [("nocall", 1.0)]:
            code = "nocall" if not pairs else "abc"
            rows.append([len(rows) + 1, "Spectrogram 1", 1, begin, end, 0, 15000, name, code, score, recording, begin])
    return _table("\t", [*header.split(",")[:-1], "Confidence", "Begin Path", "File Offset (s)"], rows)


def birdnet_kaleidoscope(answers):
    """The table with offsets and durations."""
    header = ["INDIR", "FOLDER", "IN FILE", "OFFSET", "DURATION", "scientific_name", "common_name", "confidence", "lat"]
    rows = []
    for image, pairs in answers:
        recording, begin, end = _window(image)
        folder, _, file = recording.rpartition("/")
        length = float(end) - float(begin)
        rows += [["", folder, file, begin, length, "Aves", name, score, 1.5] for name, score in pairs]
    return _table(",", header, rows)


def rekognition_response(pairs):
    """What DetectLabels returns: confidences in percent."""
    labels = [{"Name": name, "Confidence": 100 * score, "Instances": [], "Parents": []} for name, score in pairs]
    return {"Labels": labels, "LabelModelVersion": "3.0"}


def rekognition(answers):
    """One response per line, with the image that was asked about."""
    return "\n".join(json.dumps({"image": image, **rekognition_response(pairs)}) for image, pairs in answers)


def vision(answers):
    """A batch of Cloud Vision; an image without labels has no annotations."""
    responses = []
    for image, pairs in answers:
        labels = [{"mid": "/m/01", "description": name, "score": score, "topicality": score} for name, score in pairs]
        responses.append({**({"labelAnnotations": labels} if labels else {}), "context": {"uri": image}})
    return json.dumps({"responses": responses})


def hugging_face(answers):
    """What a pipeline returns for a list of images, which it does not name."""
    return json.dumps([[{"score": score, "label": name} for name, score in pairs] for _, pairs in answers])


def hugging_face_lines(answers):
    """The same, one line per image."""
    return "\n".join(json.dumps([{"score": score, "label": name} for name, score in pairs]) for _, pairs in answers)


#: name of the file, how it is written, whether it names images, and whether it can hold an answer without labels
FORMATS = {
    "speciesnet": ("predictions.json", speciesnet, True, True),
    "megadetector": ("md.json", megadetector, True, True),
    "megadetector, images first": ("md.json", lambda answers: megadetector(answers, images_first=True), True, True),
    "birdnet csv": ("a.BirdNET.results.csv", birdnet_csv, True, False),
    "birdnet raven": ("a.BirdNET.selection.table.txt", birdnet_raven, True, True),
    "birdnet kaleidoscope": ("k.csv", birdnet_kaleidoscope, True, False),
    "rekognition": ("aws.jsonl", rekognition, True, True),
    "vision": ("vision.json", vision, True, True),
    "hugging face": ("hf.json", hugging_face, False, True),
    "hugging face lines": ("hf.jsonl", hugging_face_lines, False, True),
}
